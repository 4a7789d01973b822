"""`sasl.jaas.config`: one known module with options; errors contain no password."""

from __future__ import annotations

import pytest

from anabranch.clients.jaas import MODULES, login_module

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_login_module_with_users_is_parsed() -> None:
    module = login_module(
        f""" {PLAIN} required
            username="broker" password='its "own"'
            user_alice="a;b=c \\"d\\" \\\\" user_bob=bare user_empty="";
        """
    )
    assert module.kind == "PLAIN"
    assert module.options["username"] == "broker"
    assert module.options["password"] == 'its "own"'
    assert module.passwords == {"alice": 'a;b=c "d" \\', "bob": "bare", "empty": ""}


@pytest.mark.parametrize("name", MODULES)
def test_each_known_module_needs_no_options(name: str) -> None:
    assert login_module(f"{name} Required;").kind == MODULES[name]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ";", PLAIN, f"{PLAIN};", f"{PLAIN} required", f"{PLAIN} perhaps;"),
        f"{PLAIN} required user_a=planted",
        f'{PLAIN} required user_a="planted;',
        f"{PLAIN} required user_a planted;",
        f"{PLAIN} required user_a=;",
        f"{PLAIN} required =planted user_a;",
        f"{PLAIN} required; {PLAIN} required;",
        f"{PLAIN} required; user_a=planted",
        "com.sun.security.auth.module.JndiLoginModule required user_a=planted;",
        "com.sun.security.auth.module.LdapLoginModule required;",
        "planted required;",
    ],
)
def test_malformed_jaas_config_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"^sasl\.jaas\.config: ") as error:
        login_module(text)
    assert "planted" not in str(error.value)


def test_repr_of_login_module_hides_password() -> None:
    assert "planted" not in repr(login_module(f"{PLAIN} required password=planted;"))
