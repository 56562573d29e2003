"""What a build inside an image needs to reach what this machine reaches: mirrors, indexes, certificates, caches.

`buildah bud` takes no environment for its RUN steps that would not end up in the image or its history. All of it is
therefore written as configuration files, and these are mounted over folders that the base image has empty or to spare.
"""

from __future__ import annotations

import configparser
import itertools
import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CERTIFICATES = "/etc/ssl/certs"
_BUNDLE = f"{_CERTIFICATES}/ca-certificates.crt"
_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CONFIG = "/root/.config"
_CACHE = "/root/.cache"
# Other options of pip say what to install and where, which is the Dockerfile's affair.
_PIP_OPTIONS = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "trusted-host",
    "proxy",
    "client-cert",
    "timeout",
    "default-timeout",
    "retries",
)
_UV_LISTS = ("extra-index-url", "find-links", "allow-insecure-host")
_APT_OPTION = re.compile(r'Acquire::(?:https?|Check-|Retries|ForceIPv)(?!.*Auto-?Detect).* "[^"]+";')
_ONE_LINE = re.compile(
    r"^deb\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>[^#\n]+)", re.MULTILINE
)

_FIELD = re.compile(r"^(?P<key>[\w-]+):(?P<value>.*(?:\n[ \t].*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """One place apt takes packages from."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]

    def line(self, suite: str) -> str:
        """The line of a sources.list for `suite` alone."""
        return f"deb {self.uri} {suite} {' '.join(self.components)}\n"


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of this machine as a build sees it."""

    source: Path
    target: str
    writable: bool = False

    def argument(self) -> str:
        return f"--volume={self.source}:{self.target}:{'rw' if self.writable else 'ro'}"


def machine_source(suite: str) -> Source | None:
    """Where this machine's apt takes the packages of `suite` from."""
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
    files += sorted((folder / "sources.list.d").glob("*.sources"))
    return find_source((path.read_text(encoding="utf-8") for path in files if path.exists()), suite)


def find_source(texts: Iterable[str], suite: str) -> Source | None:
    """The first source of `suite` itself that debootstrap can read, in sources.list files of either format."""
    for source in itertools.chain.from_iterable(_sources(text) for text in texts):
        if suite in source.suites and source.uri.startswith(("http://", "https://", "file:/")):
            return source
    return None


def _sources(text: str) -> Iterable[Source]:
    for match in _ONE_LINE.finditer(text):
        yield Source(match["uri"], (match["suite"],), tuple(match["components"].split()))
    uncommented = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", uncommented):
        fields = {match["key"].lower(): match["value"].split() for match in _FIELD.finditer(stanza)}
        if "deb" in fields.get("types", []) and fields.get("enabled") != ["no"]:
            for uri in fields.get("uris", []):
                yield Source(uri, tuple(fields.get("suites", [])), tuple(fields.get("components", [])))


def pip_settings(environment: Mapping[str, str], files: Iterable[str]) -> dict[str, str]:
    """What `files` in pip's format and then `environment` say about where packages come from."""
    settings: dict[str, str] = {}
    for text in files:
        parser = configparser.RawConfigParser()
        parser.read_string(text)
        for section in ("global", "install"):
            settings |= dict(parser[section]) if parser.has_section(section) else {}
    settings |= {key[4:].lower().replace("_", "-"): value for key, value in environment.items() if key[:4] == "PIP_"}
    return {name: " ".join(settings[name].split()) for name in _PIP_OPTIONS if settings.get(name)}


def uv_settings(environment: Mapping[str, str], configured: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a uv.toml which are `configured` or which `environment` replaces, made fit for a build."""
    settings = dict(configured)
    given = {
        key[3:].lower().replace("_", "-"): value for key, value in environment.items() if key[:3] == "UV_" and value
    }
    if "insecure-host" in given:
        given["allow-insecure-host"] = given["insecure-host"]
    settings |= {name: given[name].split() for name in _UV_LISTS if name in given}
    settings |= {name: given[name] for name in ("index-url", "index-strategy") if name in given}
    indexes: list[dict[str, object]] = []
    if "default-index" in given:
        indexes.append({"url": given["default-index"], "default": True})
    for word in given.get("index", "").split():
        name, separator, url = word.partition("=")
        named = separator and "/" not in name
        indexes.append({"name": name, "url": url} if named else {"url": word})
    if indexes:
        settings["index"] = indexes
    # The cache is another file system; the machine's certificates are the image's system certificates.
    return settings | {"link-mode": "copy", "system-certs": True}


def toml(settings: Mapping[str, Any]) -> str:
    """`settings` as a TOML document."""
    return "".join(f"{json.dumps(key)} = {_toml_value(value)}\n" for key, value in settings.items())


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value)


def apt_settings(dump: str) -> str:
    """The part of `apt-config dump` that is about the way to the mirror; and leave no package files in layers."""
    kept = [line for line in dump.splitlines() if _APT_OPTION.fullmatch(line)]
    return "\n".join([*kept, 'APT::Keep-Downloaded-Packages "false";', ""])


def lend(folder: Path, suite: str) -> list[Mount]:
    """Write this machine's settings into `folder`; return what a build mounts, outer folders before inner ones."""
    config, cache, apt, sources = (folder / name for name in ("config", "cache", "apt", "sources.list"))
    paths: list[Mount] = []

    def lent(words: Iterable[str]) -> list[str]:
        return [_lend_path(word, config, paths) for word in words]

    pip = {key: " ".join(lent(value.split())) for key, value in pip_settings(os.environ, _pip_files()).items()}
    pip["cert"] = _BUNDLE
    _write(
        config / "pip" / "pip.conf", "\n".join(["[global]", *(f"{key} = {value}" for key, value in pip.items()), ""])
    )
    uv = uv_settings(os.environ, _uv_configured())
    uv |= {key: lent(uv[key]) for key in _UV_LISTS if key in uv}
    _write(config / "uv" / "uv.toml", toml(uv))
    dump = subprocess.run([find("apt-config"), "dump", "Acquire"], capture_output=True, text=True, check=True)
    _write(apt / "50reach", apt_settings(dump.stdout))
    source = machine_source(suite)
    _write(sources, source.line(suite) if source else "")
    apt_mounts = [Mount(apt, "/etc/apt/apt.conf.d"), Mount(sources, "/etc/apt/sources.list")]
    return [Mount(config, _CONFIG), *paths, *apt_mounts, *_certificates(), *_caches(cache)]


def _lend_path(word: str, config: Path, paths: list[Mount]) -> str:
    """Where the build finds `word` if that is a file or folder of this machine, else `word`."""
    source = Path(word)
    if not source.is_absolute() or not source.exists():
        return word
    # What is mounted upon has to be there, or it would be made in the image.
    place = Path("machine") / str(len(paths))
    if source.is_dir():
        (config / place).mkdir(parents=True)
    else:
        _write(config / place, "")
    paths.append(Mount(source, f"{_CONFIG}/{place}"))
    return paths[-1].target


def _certificates() -> list[Mount]:
    mounts = [Mount(Path(_CERTIFICATES), _CERTIFICATES)] if Path(_BUNDLE).exists() else []
    bundles = [Path(os.environ[name]) for name in _BUNDLE_VARIABLES if os.environ.get(name)]
    chosen = next((path for path in bundles if path.is_file()), Path(_BUNDLE))
    if chosen.resolve() != Path(_BUNDLE).resolve():
        mounts.append(Mount(chosen.resolve(), _BUNDLE))
    return mounts


def _caches(folder: Path) -> list[Mount]:
    mounts = [Mount(folder, _CACHE, writable=True)]
    for tool, variable in (("uv", "UV_CACHE_DIR"), ("pip", "PIP_CACHE_DIR")):
        kept = Path(os.environ.get(variable) or xdg("CACHE") / tool).absolute()
        kept.mkdir(parents=True, exist_ok=True)
        (folder / tool).mkdir(parents=True)
        mounts.append(Mount(kept, f"{_CACHE}/{tool}", writable=True))
    return mounts


def _pip_files() -> list[str]:
    named = os.environ.get("PIP_CONFIG_FILE")
    files = [Path("/etc/pip.conf"), xdg("CONFIG") / "pip" / "pip.conf", *([Path(named)] if named else [])]
    return [path.read_text(encoding="utf-8") for path in files if path.is_file()]


def _uv_configured() -> dict[str, Any]:
    named = os.environ.get("UV_CONFIG_FILE")
    files = [*([Path(named)] if named else []), xdg("CONFIG") / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]
    path = next((path for path in files if path.is_file()), None)
    return tomllib.loads(path.read_text(encoding="utf-8")) if path else {}


def xdg(kind: str) -> Path:
    """The user's folder for CONFIG or CACHE, by the XDG base directory specification."""
    configured = Path(os.environ.get(f"XDG_{kind}_HOME", ""))
    # The specification has relative paths ignored.
    return configured if configured.is_absolute() else Path.home() / f".{kind.lower()}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
