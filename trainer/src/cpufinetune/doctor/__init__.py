"""Whether this machine or pod is fit for training, what each problem costs and how to cure it.

`gather` reads facts, `examine` judges them, `deep` tries PyTorch in a process of its own; nothing here imports it.
"""
