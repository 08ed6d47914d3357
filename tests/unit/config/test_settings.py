"""`config.toml`: what it says holds, what is wrong in it is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_tui.cli.config import ConfigThere, example_settings, write_settings
from rocm_tui.config import places
from rocm_tui.config.settings import (
    CAUTIOUS,
    Config,
    Settings,
    parse,
    read_settings,
    settings,
    settings_now,
)
from rocm_tui.tui import keymap

KEYS = {name: (one.key, str(one.tooltip)) for name, one in keymap.bindings().items()}


def read(text: str) -> Settings:
    return parse(Path("config.toml"), text.encode())


def wrong(text: str) -> list[str]:
    now = read(text)
    return [str(one) for one in (*now.mistakes, *keymap.mistakes(now)[1])]


def test_what_the_file_says_holds() -> None:
    now = read(
        '[theme]\nname = "rocm-light"\n\n[limits]\nlog_lines = 50\n'
        '[colours]\naccent = 75\n[columns]\nhide = ["from"]\n[keys]\nwatch.pin = "f5"\n'
        '"app.jobs" = "f6"'
    )
    assert now.mistakes == ()
    assert now.config.theme.name == "rocm-light"
    assert now.config.limits.log_lines == 50
    assert now.config.colours.accent == "75"
    assert now.config.columns.hide == ("from",)
    assert now.config.keys == {"watch.pin": "f5", "app.jobs": "f6"}
    assert now.lines["limits.log_lines"] == 5 and now.lines["keys.app.jobs"] == 12


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[theme]\nname = "rocm-drak"',
            "config.toml:2: theme.name: Invalid enum value 'rocm-drak': did you mean 'rocm-dark'?",
        ),
        ("[limts]\nx = 1", "config.toml:1: no section 'limts': did you mean 'limits'?"),
        (
            "[limits]\nlog_line = 9",
            "config.toml:2: no setting 'log_line' in [limits]: did you mean",
        ),
        ("[limits]\nlog_lines = 2", "limits.log_lines: Expected `int` >= 10"),
        ("[limits]\nlog_lines = true", "limits.log_lines: Expected `int`, got `bool`"),
        ("[columns]\nhide = 'from'", "columns.hide: Expected `array`, got `str`"),
        ("theme = 3", "config.toml:1: 'theme' is a section: write [theme]"),
        ("[theme]\n\nname = rocm", "config.toml:3: not valid TOML: Unexpected character: 'r'"),
        ("[keys]\nwatch.pni = 'f5'", "no key 'watch.pni': did you mean 'watch.pin'?"),
        ("[keys]\nwatch.pin = 'esc'", "no key is called 'esc': did you mean 'escape'?"),
        ("[keys]\nwatch.pin = ''", "config.toml:2: watch.pin: a key is a text"),
        ("[keys]\nwatch.pin = 'u'", "config.toml:2: watch.pin and watch.unpin would both be 'u'"),
        ("[keys]\napp.jobs = 'j'", "config.toml:2: app.jobs and list.down would both be 'j'"),
        ("[keys]\nlist.down = 'm'", "config.toml:2: list.down and watch.measure would both be 'm'"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_the_rest_holds(text: str, told: str) -> None:
    (line,) = wrong(text)[:1]
    assert told in line


def test_keys_that_share_from_the_start_may_and_those_of_other_screens_do() -> None:
    assert wrong("[keys]\njobs.cancel = 'v'\n'watch.filter' = '/,f3'") == []
    swapped = read("[keys]\nwatch.pin = 'u'\nwatch.unpin = 'p'")
    assert keymap.mistakes(swapped) == ({"watch.pin": "u", "watch.unpin": "p"}, [])


def test_no_file_is_no_mistake_unless_it_was_named(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "none.toml") == Settings(tmp_path / "none.toml", Config())
    (mistake,) = read_settings(tmp_path / "none.toml", named=True).mistakes
    assert mistake.what == "there is no such file"
    (mistake,) = read_settings(tmp_path).mistakes
    assert "not a regular file" in mistake.what


@pytest.mark.parametrize(
    "text", ["[watch]\nread_only = 'yes'", "[watch]\nreadonly = true", "watch = true"]
)
def test_a_mistake_about_read_only_is_read_only(text: str) -> None:
    assert read(text).config == CAUTIOUS


def test_an_empty_name_of_the_file_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ROCM_TUI_CONFIG", "")
    assert not places.config_given() and settings_now().mistakes == ()


def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCM_TUI_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(places.config_path()) == "/home/ada/.config/rocm-tui/config.toml"
    assert str(places.state_path()) == "/home/ada/.local/state/rocm-tui/state.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert str(places.config_path()) == "/c/rocm-tui/config.toml"
    assert str(places.state_path()) == "/home/ada/.local/state/rocm-tui/state.json"
    monkeypatch.setenv("ROCM_TUI_CONFIG", "/x.toml")
    assert str(places.config_path()) == "/x.toml"


@pytest.mark.parametrize(
    "text",
    [
        "a = 1\na = 2", "x = " + "[" * 3000, "x = '\n", "\x00", "a.b = 1\na.b.c = 2", "[a]\n[a]",
        ".".join("a" * 20_000) + " = 1", "[" + ".".join("a" * 20_000) + "]",
        "a = " + "{a=" * 2000 + "1" + "}" * 2000, "a = " + "[" * 3000 + "]" * 3000,
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_a_damaged_file_is_one_mistake(text: str) -> None:
    (mistake,) = read(text).mistakes
    assert "not valid TOML" in mistake.what and "\n" not in mistake.what
    assert mistake.line is not None and read(text).config == CAUTIOUS


def test_a_file_that_is_too_long_to_be_one_of_settings_is_one_mistake(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("".join(f"a{n} = 1\n" for n in range(20_000)))
    (mistake,) = read_settings(path).mistakes
    assert "more than 128" in mistake.what and read_settings(path).config == CAUTIOUS


def test_bytes_that_are_no_text_are_one_mistake() -> None:
    (mistake,) = parse(Path("config.toml"), b"[theme]\nname = '\xff'").mistakes
    assert "not valid TOML" in mistake.what


@pytest.mark.parametrize("value", ["nan", "inf", "0.5", "1e7", "'30'", "true"])
def test_a_budget_that_is_no_number_of_seconds_keeps_its_default(value: str) -> None:
    now = read(f"[budgets]\nmeasure = {value}\ntrial = 8")
    (mistake,) = now.mistakes
    assert mistake.what.startswith("budgets.measure: Expected `float`")
    assert (now.config.budgets.measure, now.config.budgets.trial) == (30.0, 8.0)


def test_the_written_file_says_the_defaults_with_and_without_its_marks() -> None:
    text = example_settings(KEYS)
    assert read(text) == Settings(Path("config.toml"), Config(), True)
    bare = "\n".join(
        line.removeprefix("# ") if " = " in line else line for line in text.split("\n")
    )
    now = read(bare)
    assert now.mistakes == () and keymap.mistakes(now)[1] == []
    assert now.config.keys == {name: key for name, (key, _) in KEYS.items()}
    assert {*now.lines} >= {one.full_name for one in settings()}
    assert read(bare).config.limits == Config().limits


def test_a_persons_file_is_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    assert write_settings(path, "one\n", replace=False) is None
    with pytest.raises(ConfigThere, match="--yes"):
        write_settings(path, "two\n", replace=False)
    assert path.read_text() == "one\n"
    copies = [write_settings(path, f"{text}\n", replace=True) for text in ("two", "three")]
    assert [copy.read_text() for copy in copies if copy] == ["one\n", "two\n"]
    assert path.read_text() == "three\n"
