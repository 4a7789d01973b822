"""Both connections of the audit (driver sockets and librdkafka), with the same Kafka properties."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from anabranch.audit import results
from anabranch.cli import audit as command
from anabranch.clients.authentication import AuthenticationFailed
from anabranch.clients.certificates import CertificateAuthority
from anabranch.spark_jobs import inputs, secured, session
from anabranch.spark_jobs.reader import LATEST, TopicReader
from anabranch.spark_jobs.secured import of_librdkafka
from anabranch.spark_jobs.source_options import OPEN
from anabranch.spark_jobs.writer import TopicWriter
from tests.clients.test_token_endpoint import VALIDATOR, client_properties
from tests.secured import issuer as issuers
from tests.secured.certificates import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, files
from tests.secured.test_leaks import leaks
from tests.spark_jobs.live import LiveCluster, deliveries
from tests.spark_jobs.locked import LISTENER, PASSWORD, client_of, locked_cluster
from tests.spark_jobs.test_work import WISH


@pytest.fixture(scope="module")
def locked() -> Iterator[LiveCluster]:
    with locked_cluster() as cluster:
        yield cluster


def test_secured_topic_is_described_read_and_written(locked: LiveCluster, spark: SparkSession) -> None:
    topic, servers = locked.create("locked", 2), locked.cluster.bootstrap_servers_of(LISTENER)
    written = [(number % 2, b"k%d" % number, b"v%d" % number) for number in range(100)]
    locked.produce(topic, written)
    writer = TopicWriter(servers, topic, client_of())
    writer.write([(b"k", b"of the audit")], 1_700_000_000_000)
    writer.close()
    with TopicReader(servers, client_of()) as reader:
        assert sum(reader.offsets(topic, LATEST).values()) == len(written) + 1
    rows = inputs.batch(spark, servers, [topic], client=client_of()).select("value").collect()
    assert sorted(bytes(row["value"]) for row in rows) == sorted([*(value for _, _, value in written), b"of the audit"])


@pytest.mark.spark
@pytest.mark.parametrize("backfill", [False, True], ids=["stream", "batch"])
def test_audit_output_contains_no_password(
    locked: LiveCluster,
    spark: SparkSession,
    backfill: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The report, the verdict, the checkpoint, Spark's log and what is printed; and what a violation leaves.

    `tests.anabranch.cli.test_audit` looks at what a service leaves that is a process.
    """
    monkeypatch.setattr(session, "AuditSpark", lambda *_, **__: contextlib.nullcontext(spark))
    topic, servers = locked.create(f"told-{backfill}", 2), locked.cluster.bootstrap_servers_of(LISTENER)
    locked.produce(topic, deliveries(b"k", [(1, 0, 1), (0, 0, 0)]))
    options = replace(WISH, bootstrap_servers=servers, topic=topic, out=tmp_path, client=client_of(), backfill=backfill)
    assert command.run(options) == 1, "there is a violation"
    out, err = capsys.readouterr()
    assert err == ""
    assert any(line.startswith("│ out of order") and "1" in line for line in out.splitlines()), out
    assert json.loads((options.directory / results.VERDICT).read_text())["clean"] is False
    assert "Order audit" in (options.directory / results.REPORT).read_text()
    assert len(list((options.directory / "violations").glob("*.parquet"))) == 1
    log = Path(spark.sparkContext.getConf().get("spark.local.dir") or "").parent / "spark.log"
    outputs = {"stdout": out.encode(), "log": log.read_bytes()}
    outputs |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {place for place, content in outputs.items() if leaks(content, PASSWORD.encode())} == set()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="wrong";'}, "invalid credentials"),
        ({"ssl.truststore.location": "others.pem"}, "failed the TLS verification"),
    ],
)
def test_failed_authentication_is_reported_at_once(
    locked: LiveCluster, changes: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries would not help, so the query does not wait for a broker."""
    monkeypatch.chdir(tmp_path)
    Path("others.pem").write_bytes(CertificateAuthority().certificate)
    with (
        TopicReader(locked.cluster.bootstrap_servers_of(LISTENER), client_of(**changes), timeout_s=1e9) as reader,
        pytest.raises(AuthenticationFailed, match=why),
    ):
        reader.topics()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"sasl.username": "alice", "sasl.password": PASSWORD, "ssl.endpoint.identification.algorithm": "https"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files().broker)},
            {"ssl.certificate.location": str(files().broker), "ssl.key.location": str(files().broker)},
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            | {"sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="b";'},
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
        ),
        ({"security.protocol": "ssl"}, {"security.protocol": "SSL", "ssl.ca.location": str(files().ca)}),
    ],
)
def test_kafka_properties_are_translated_for_librdkafka(changes: dict[str, str], expected: dict[str, str]) -> None:
    settings = of_librdkafka(client_of(**changes))
    assert settings.items() >= expected.items()
    Consumer({"group.id": "g", **settings}).close()


def test_token_and_its_expiry_are_passed_to_librdkafka(tmp_path: Path) -> None:
    file = tmp_path / "token"
    client = {
        **client_of(),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH_MODULE} required;",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    body = base64.urlsafe_b64encode(json.dumps({"exp": 1_900_000_000}).encode()).decode().rstrip("=")
    file.write_text(f"head.{body}.sign\n")
    callback = of_librdkafka(client)["oauth_cb"]
    assert callback("") == (f"head.{body}.sign", 1_900_000_000)
    file.write_text("no token")
    with pytest.raises(ValueError, match="not a JSON web token"):
        callback("")


def test_driver_logs_in_with_a_token_of_an_issuer(tmp_path: Path) -> None:
    """The driver has no event loop; a request for a token blocks."""
    issuer = issuers.Issuer()
    (tmp_path / "keys").write_text(issuers.jwks(issuer))
    prefix = "listener.name.sasl_plaintext.oauthbearer"
    properties = {
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys").as_uri(),
        f"{prefix}.sasl.server.callback.handler.class": VALIDATOR,
        f"{prefix}.sasl.jaas.config": f"{OAUTH_MODULE} required;",
    }
    addresses = ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with (
        issuers.TokenEndpoint(issuer, {"alice": "planted"}) as endpoint,
        LiveCluster(1, listeners=addresses, properties=properties) as cluster,
        TopicReader(
            cluster.cluster.bootstrap_servers_of("SASL_PLAINTEXT"),
            secured.of(client_properties(endpoint.url, "alice", "planted")),
        ) as reader,
    ):
        assert reader.topics() == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ssl.truststore.type": "PKCS12"}, "not read with this password|needs PEM|PKCS"),
        (
            {"sasl.jaas.config": f'{SCRAM_MODULE} required username="id" password="secret" tokenauth="true";'},
            "delegation tokens",
        ),
        ({"sasl.mechanism": "GSSAPI"}, "Kerberos is not supported"),
        ({"ssl.truststore.location": "absent.pem"}, "absent.pem"),
    ],
)
def test_contradictory_properties_are_refused_before_connecting(changes: dict[str, str], why: str) -> None:
    with pytest.raises((ValueError, OSError), match=why) as refusal:
        client_of(**changes)
    assert "secret" not in str(refusal.value)


def test_no_properties_mean_no_security() -> None:
    assert secured.security(OPEN) is None
    assert of_librdkafka(OPEN) == {}
