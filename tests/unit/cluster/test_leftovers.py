"""What nodes leave behind, with folders of the test's own in place of the machine's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from localcluster import kernel, leftovers, plan

if TYPE_CHECKING:
    from collections.abc import Callable

SOCKET = f"/run/containerd/s/{'0a' * 32}"
OTHER = f"/run/containerd/s/{'0b' * 32}"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        pytest.param("address", f"unix://{SOCKET}", {Path(SOCKET)}, id="as plain text"),
        pytest.param("bootstrap.json", f'{{"version":3,"address":"unix://{OTHER}"}}', {Path(OTHER)}, id="as JSON"),
        pytest.param("address", "unix:///etc/passwd", set(), id="not a shim's"),
        pytest.param("config.json", f"unix://{SOCKET}", set(), id="in another file"),
    ],
)
def test_bundles_say_where_sockets_of_shims_are(tmp_path: Path, file: str, text: str, found: set[Path]) -> None:
    bundle = tmp_path / "run" / "io.containerd.runtime.v2.task" / "k8s.io" / "a"
    bundle.mkdir(parents=True)
    (bundle / file).write_text(text, encoding="utf-8")
    assert leftovers.shim_sockets(tmp_path) == found


def test_only_the_nodes_own_traces_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "one" / "node-a", tmp_path / "one" / "node-ab"
    results, links = tmp_path / "results", tmp_path / "links"
    monkeypatch.setattr(leftovers, "RESULTS", results)
    monkeypatch.setattr(leftovers, "LOG_LINKS", links)
    leftovers.remove_traces(ours)
    for folder in (results, links):
        folder.mkdir()
    for name, node in (("ours", ours), ("theirs", theirs)):
        (results / name).write_text(f'{{"sandbox":"{node}/run/netns/cni-1"}}', encoding="utf-8")
        (links / name).symlink_to(node / "pod-logs" / "0.log")
    (links / "file").touch()
    leftovers.remove_traces(ours)
    assert [file.name for file in results.iterdir()] == ["theirs"]
    assert {file.name for file in links.iterdir()} == {"theirs", "file"}


@pytest.fixture(name="change")
def fixture_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Give a function that changes a setting of a kernel's and returns the old value."""
    monkeypatch.setattr(plan, "HOME", tmp_path / "home")
    monkeypatch.setattr(kernel, "SETTINGS", tmp_path / "sys")

    def change(name: str, value: str) -> str:
        file = tmp_path / "sys" / name
        before = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n", encoding="utf-8")
        return before

    return change


def test_the_kernels_settings_come_back_with_the_end_of_the_last_node(
    change: Callable[[str, str], str], tmp_path: Path
) -> None:
    for name in kernel.KUBELET:
        change(name, "7")
    kernel.remember()
    for name, value in kernel.KUBELET.items():
        change(name, value)
    kernel.remember()
    change("vm/panic_on_oom", "2")
    node = tmp_path / "home" / "one" / "node-a"
    node.mkdir(parents=True)
    (node / "kubelet.yaml").touch()
    kernel.restore()
    assert change("kernel/panic", "10") == "10"
    (node / "kubelet.yaml").unlink()
    kernel.restore()
    assert {name: change(name, "8") for name in kernel.KUBELET} == {
        **dict.fromkeys(kernel.KUBELET, "7"),
        "vm/panic_on_oom": "2",
    }
    kernel.restore()
    assert change("kernel/panic", "0") == "8"


@pytest.mark.parametrize(
    ("text", "found"),
    [("0\n", {0}), ("0-3\n", {0, 1, 2, 3}), ("0,2,4-5\n", {0, 2, 4, 5})],
)
def test_processors_may_have_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: set[int]) -> None:
    monkeypatch.setattr(kernel, "ONLINE", tmp_path / "online")
    (tmp_path / "online").write_text(text, encoding="utf-8")
    assert kernel.processors() == found
