"""Creates a node's authorizer from its settings: none, or one with access control lists in ZooKeeper.

Both of Kafka's class names select the same authorizer, because their decisions are the same. Settings that only an
authorizer uses are refused without one: the cluster would look protected but be open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.authorization.authorizer import Authorizer, super_users_in
from anabranch.broker.config.config_def import ConfigError

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings

CLASSES: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


def authorizer_of(settings: BrokerSettings) -> Authorizer | None:
    """Return a new authorizer without entries, or None if everything is allowed. Raises ConfigError."""
    name = settings.authorizer_class_name
    if not name:
        if settings.super_users or settings.allow_everyone_if_no_acl_found:
            raise ConfigError(
                "super.users and allow.everyone.if.no.acl.found need an authorizer, and none is configured: everybody "
                f"may do everything. Add authorizer.class.name={CLASSES[0]}, or leave them out"
            )
        return None
    if name not in CLASSES:
        raise ConfigError(
            f"authorizer.class.name={name}: no Java class can be loaded here; write {CLASSES[0]}, or leave it out"
        )
    try:
        super_users = super_users_in(settings.super_users)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Authorizer(super_users, open_without_acls=settings.allow_everyone_if_no_acl_found)
