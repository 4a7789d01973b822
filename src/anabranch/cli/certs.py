"""`anabranch certs`: creates a certificate authority and certificates for a local cluster."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.runtime.private_files import write_private_file


@click.group(
    cls=CommandGroup,
    name="certs",
    epilog="""\b
Examples:
  anabranch certs make ./certs                          ca.pem, broker.pem and client.pem
  anabranch certs make ./certs --host kafka.example --user alice --user bob
  anabranch up --listener SSL://127.0.0.1:9093 --config ssl.keystore.type=PEM
      --config ssl.keystore.location=certs/broker.pem
""",
)
def command() -> None:
    """Make certificates for a local cluster."""


@command.command(
    epilog="""\b
Examples:
  anabranch certs make ./certs
  anabranch certs make ./certs --host kafka.example --user alice --user bob
  anabranch certs make ./certs --stores                 for Java's clients
""",
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", "hosts", multiple=True, help="A further name or address of the brokers.")
@click.option(
    "--user", "users", multiple=True, default=("client",), show_default=True, help="A user that gets a certificate."
)
@click.option("--stores", "store", is_flag=True, help="Also as PKCS#12 stores, whose password is `changeit`.")
def make(directory: Path, hosts: tuple[str, ...], users: tuple[str, ...], store: bool) -> None:
    """Write an authority and certificates to DIRECTORY.

    They are ca.pem, broker.pem and a file for each user: key, certificate and chain in one.
    """
    try:
        from anabranch.clients.certificates import CertificateAuthority
    except ImportError:
        raise click.ClickException("this needs `pip install anabranch[security]`") from None
    for user in users:
        if user in ("", "ca", "broker") or "/" in user or "\0" in user:
            raise click.ClickException(f"--user {user!r}: its file would not be a user's; choose another name")
    directory.mkdir(parents=True, exist_ok=True)
    taken = [name for name in ("ca.pem", "broker.pem") if (directory / name).exists()]
    if taken:
        raise click.ClickException(f"{directory / taken[0]} exists; write another directory, or remove it")
    authority = CertificateAuthority()
    (directory / "ca.pem").write_bytes(authority.certificate)
    click.echo(f"{directory / 'ca.pem'}: the CA that clients and brokers trust")
    issued = {"broker": authority.issue([("CN", "broker")], [*hosts, "localhost", "127.0.0.1", "::1"])}
    issued |= {user: authority.issue([("CN", user)]) for user in users}
    for name, one in issued.items():
        path = directory / f"{name}.pem"
        write_private_file(path, one.key + one.certificate + one.chain)
        if store:
            write_private_file(path.with_suffix(".p12"), one.store("changeit", name))
        whose = "of the brokers" if name == "broker" else f"of User:CN={name}"
        click.echo(f"{path}: key and certificate {whose}")
