from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from localcluster import images, reach

RECIPE = images.Recipe("bookworm", "x86_64")
SOURCE = reach.Source("http://mirror.example/debian", ("bookworm", "bookworm-updates"), ("main",))

DEBIAN_SOURCES = """\
Types: deb
# http://archive.example/debian/20250520T000000Z
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
# http://archive.example/debian-security/20250520T000000Z
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
UBUNTU_SOURCES = """\
# See the manual page sources.list(5) for how to write this file.
#Types: deb
#URIs: http://old.example/ubuntu

Enabled: no
Types: deb
URIs: http://disabled.example/ubuntu
Suites: noble
Components: main

Types: deb-src
URIs: http://sources.example/ubuntu
Suites: noble
Components: main

Types: deb deb-src
URIs: http://mirror.example/ubuntu/
Suites: noble noble-updates noble-backports
Components: main universe
 restricted multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""
ONE_LINE = """\
# deb cdrom:[Debian GNU/Linux 12.0.0]/ bookworm main
deb cdrom:[Debian GNU/Linux 12.0.0]/ bookworm main
deb-src http://sources.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main # updates
deb [arch=amd64 signed-by=/etc/apt/keyrings/own.gpg] https://mirror.example/debian/ bookworm main contrib # own
deb http://other.example/debian bookworm main
"""
THIRD_PARTY = "deb [arch=amd64] https://tools.example/apt stable main\n"


@pytest.mark.parametrize(
    ("texts", "suite", "found"),
    [
        ([DEBIAN_SOURCES], "bookworm", "deb http://mirror.example/debian bookworm main\n"),
        (["", THIRD_PARTY, DEBIAN_SOURCES], "bookworm", "deb http://mirror.example/debian bookworm main\n"),
        (
            [UBUNTU_SOURCES],
            "noble",
            "deb http://mirror.example/ubuntu/ noble main universe restricted multiverse\n",
        ),
        ([ONE_LINE], "bookworm", "deb https://mirror.example/debian/ bookworm main contrib\n"),
        ([ONE_LINE, DEBIAN_SOURCES], "bookworm", "deb https://mirror.example/debian/ bookworm main contrib\n"),
    ],
    ids=["Debian's file", "after other files", "Ubuntu's file", "one line a source", "the first file counts"],
)
def test_the_mirror_is_the_one_apt_takes_the_suite_from(texts: list[str], suite: str, found: str) -> None:
    source = reach.find_source(texts, suite)
    assert source is not None
    assert source.line(suite) == found


@pytest.mark.parametrize("texts", [[], [THIRD_PARTY], [DEBIAN_SOURCES, ONE_LINE]])
def test_a_suite_that_apt_does_not_know_has_no_mirror(texts: list[str]) -> None:
    assert reach.find_source(texts, "trixie") is None


def test_the_base_image_is_named_by_what_decides_its_content() -> None:
    assert RECIPE.image() == replace(RECIPE).image()
    others = [
        replace(RECIPE, suite="trixie"),
        replace(RECIPE, architecture="aarch64"),
        replace(RECIPE, packages=(*RECIPE.packages, "numactl")),
        replace(RECIPE, emptied=()),
        replace(RECIPE, mount_points=()),
    ]
    names = {recipe.image() for recipe in [RECIPE, *others]}
    assert len(names) == len(others) + 1
    assert all(name.startswith("localhost/cft-base:") for name in names)


@pytest.mark.parametrize(
    ("components", "option"),
    [
        (("main",), "--components=main"),
        (("main", "restricted", "universe", "multiverse"), "--components=main,universe"),
    ],
)
def test_debootstrap_takes_only_the_components_it_needs(components: tuple[str, ...], option: str) -> None:
    assert images.debootstrap_arguments(RECIPE, replace(SOURCE, components=components), Path("/root-folder")) == [
        "debootstrap",
        "--variant=minbase",
        option,
        "--include=python3,python3-venv,ca-certificates,libgomp1,libnuma1",
        "bookworm",
        "/root-folder",
        "http://mirror.example/debian",
    ]


def test_a_build_mounts_outer_folders_first_and_pulls_nothing() -> None:
    mounts = [
        reach.Mount(Path("/lent/config"), "/root/.config"),
        reach.Mount(Path("/wheels"), "/root/.config/machine/0"),
        reach.Mount(Path("/cache/uv"), "/root/.cache/uv", writable=True),
    ]
    arguments = {"BASE_IMAGE": "localhost/cft-base:1", "EXTRA": "a=b c"}
    assert images.bud_arguments(Path("x.Dockerfile"), Path("tree"), "localhost/x:1", arguments, mounts) == [
        "buildah",
        "bud",
        "--layers",
        "--pull-never",
        "--network=host",
        "--volume=/lent/config:/root/.config:ro",
        "--volume=/wheels:/root/.config/machine/0:ro",
        "--volume=/cache/uv:/root/.cache/uv:rw",
        "--build-arg=BASE_IMAGE=localhost/cft-base:1",
        "--build-arg=EXTRA=a=b c",
        "--tag=localhost/x:1",
        "--file=x.Dockerfile",
        "tree",
    ]


def test_a_target_is_named_if_there_is_one() -> None:
    command = images.bud_arguments(Path("x.Dockerfile"), Path("tree"), "localhost/x:1", {}, [], target="small")
    assert "--target=small" in command


def test_an_archive_carries_the_name_of_its_image() -> None:
    *_options, name, target = images.push_arguments("localhost/x:1", Path("/cache/x.tar"))
    assert (name, target) == ("localhost/x:1", "oci-archive:/cache/x.tar:localhost/x:1")


@pytest.mark.parametrize(
    ("environment", "files", "settings"),
    [
        ({}, [], {}),
        ({"PIP_INDEX_URL": "https://packages.example/simple", "PATH": "/bin"}, [], "https://packages.example/simple"),
        ({}, ["[global]\nindex-url = https://packages.example/simple\n"], "https://packages.example/simple"),
        ({}, ["[global]\nindex-url = x\n", "[install]\nindex-url = y\n"], "y"),
        ({"PIP_INDEX_URL": "z"}, ["[global]\nindex-url = x\n"], "z"),
        ({"PIP_INDEX_URL": ""}, [], {}),
        ({"PIP_TARGET": "/somewhere", "PIP_REQUIRE_VIRTUALENV": "1", "PIP_CACHE_DIR": "/cache"}, [], {}),
        ({}, ["[global]\ncert = /etc/own.pem\nuser = true\n[list]\nformat = columns\n"], {}),
        ({"PIP_DEFAULT_TIMEOUT": "9"}, ["[global]\nretries: 3\n"], {"default-timeout": "9", "retries": "3"}),
        ({}, ["[global]\nextra-index-url =\n  a%20b\n  c\n"], {"extra-index-url": "a%20b c"}),
    ],
)
def test_pip_is_told_where_packages_come_from_and_nothing_else(
    environment: dict[str, str], files: list[str], settings: dict[str, str] | str
) -> None:
    expected = {"index-url": settings} if isinstance(settings, str) else settings
    assert reach.pip_settings(environment, files) == expected


@pytest.mark.parametrize(
    ("environment", "configured", "settings"),
    [
        ({}, {}, {}),
        ({"UV_PYTHON": "3.12", "UV_CACHE_DIR": "/cache", "UV_FIND_LINKS": ""}, {}, {}),
        ({"UV_LINK_MODE": "symlink"}, {"link-mode": "hardlink"}, {}),
        ({"UV_FIND_LINKS": "/a /b"}, {"find-links": ["/c"]}, {"find-links": ["/a", "/b"]}),
        ({"UV_INSECURE_HOST": "packages.example"}, {}, {"allow-insecure-host": ["packages.example"]}),
        (
            {"UV_INDEX_URL": "https://a.example"},
            {"offline": False},
            {"index-url": "https://a.example", "offline": False},
        ),
        (
            {"UV_DEFAULT_INDEX": "https://a.example", "UV_INDEX": "own=https://b.example/?x=1 https://c.example/?y=2"},
            {"index": [{"url": "https://d.example"}]},
            {
                "index": [
                    {"url": "https://a.example", "default": True},
                    {"name": "own", "url": "https://b.example/?x=1"},
                    {"url": "https://c.example/?y=2"},
                ]
            },
        ),
        ({}, {"pip": {"torch-backend": "cpu"}}, {"pip": {"torch-backend": "cpu"}}),
    ],
)
def test_uv_gets_the_configured_settings_and_those_of_the_environment(
    environment: dict[str, str], configured: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = reach.uv_settings(environment, configured)
    assert found == {**settings, "link-mode": "copy", "system-certs": True}
    assert tomllib.loads(reach.toml(found)) == found


def test_apt_is_told_the_way_to_the_mirror_and_nothing_else() -> None:
    dump = """\
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Proxy-Auto-Detect "/usr/bin/own-proxies";
Acquire::https::CAInfo "/etc/ssl/certs/ca-certificates.crt";
Acquire::cdrom::mount "/media/cdrom/";
Acquire::IndexTargets::deb::DEP-11::MetaKey "$(COMPONENT)/dep11/Components-$(NATIVE_ARCHITECTURE).yml";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
"""
    assert reach.apt_settings(dump).splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::CAInfo "/etc/ssl/certs/ca-certificates.crt";',
        'Acquire::Check-Valid-Until "false";',
        'Acquire::Retries "3";',
        'APT::Keep-Downloaded-Packages "false";',
    ]
