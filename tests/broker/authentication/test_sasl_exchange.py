"""The general text of a refusal, as clients show it."""

from __future__ import annotations

from anabranch.broker.authentication.sasl_exchange import SaslRefused, general_refusal


def test_general_text_names_the_mechanism_and_reauthentication() -> None:
    ends = "due to invalid credentials with SASL mechanism PLAIN"
    assert general_refusal("PLAIN") == f"Authentication failed during authentication {ends}"
    assert general_refusal("PLAIN", again=True) == f"Authentication failed during re-authentication {ends}"


def test_reason_for_the_log_is_not_sent_to_the_client() -> None:
    assert SaslRefused("an unknown user").client_message is None
