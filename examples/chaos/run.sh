#!/bin/sh
# A chaos run against real processes, driven through HTTP.
#
#     sh examples/chaos/run.sh 600 /tmp/chaos      ten minutes; by default one, in a new directory
#
# Brokers are killed, stopped, frozen, isolated, slowed and cut off from ZooKeeper, while two senders write and the topic
# is resized. Then the faults end, all records are read, and two judges look at what was delivered: the one in Python,
# and with AUDIT=1 the one in Spark. The exit status is 0 if both find no violation.
# It needs: pip install 'anabranch[control,audit]' confluent-kafka, Java, and curl.
set -eu

duration_s=${1:-60}
directory=${2:-$(mktemp -d)}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
topic=orders
mkdir -p "$directory"
cd "$directory"
[ -z "$(ls -A)" ] || { echo "$directory contains other files; name a new or empty directory"; exit 2; }
running=""
trap 'kill $running 2> /dev/null || true; wait' EXIT
trap 'exit 130' INT TERM

say() { printf '%s %s\n' "$(date +%T)" "$*"; }
anabranch="$python -m anabranch.cli.main"
# What the control plane refuses ends the run: the message says why.
ask() {
    curl --silent --show-error --fail-with-body --output answer.json -X "$1" "$control/v1/$2" ${3:+--data "$3"} || {
        cat answer.json
        exit 1
    }
}
on_node() { ask POST "nodes/$1/$2"; }
until_so() { ask GET "wait?timeout=300&$1"; }
fault() { ask POST faults "$1"; }
no_faults() { ask DELETE faults; }

# --- the cluster, and its load

$anabranch up --processes --zookeeper local --port 0 --control 127.0.0.1:0 --data-dir data > up.txt 2> up.log &
up=$!
running=$up
until grep -q '^ready' up.txt; do
    kill -0 $up || { cat up.log; exit 2; }
    sleep 0.2
done
servers=$(sed -n 's/.*bootstrap=\([^ ]*\).*/\1/p' up.txt)
control=$(sed -n 's/.*control=\([^ ]*\).*/\1/p' up.txt)
say "control plane: $control"
ask POST topics '{"topic": "'$topic'", "partitions": 4, "replicas": 3, "configs": {"min.insync.replicas": "2"}}'

"$python" "$here/send.py" "$servers" $topic a sent.jsonl enough & first=$!
"$python" "$here/send.py" "$servers" $topic b sent.jsonl enough & second=$!
$anabranch consume $topic --bootstrap-server "$servers" --group readers \
    --format '{"key": "%k", "sequence": %s, "partition": %p, "offset": %o}\n' > delivered.jsonl & reader=$!
running="$running $first $second $reader"
# A resize may have to wait for a controller, or be refused while the last one goes on.
while ! [ -e enough ]; do
    for count in 6 5 8 3 4; do
        [ -e enough ] || curl --silent --output /dev/null "$control/v1/topics/$topic/partitions" --data "{\"partitions\": $count}"
        sleep 3
    done
done & resizing=$!
running="$running $resizing"

# --- the faults

round=0
end=$(($(date +%s) + duration_s))
while [ "$(date +%s)" -lt $end ]; do
    node=$((round * 2 % 3 + 1))
    pause=$((round % 2 * 6 + 2)) # shorter than a ZooKeeper session, or longer
    case $((round % 8)) in
    0) say "kill node $node"
        on_node $node kill; sleep $pause; on_node $node start ;;
    1) say "freeze node $node for $pause s"
        on_node $node freeze; sleep $pause; on_node $node thaw ;;
    2) say "isolate node $node from the others for $pause s"
        fault "{\"link\": [\"$node:*\", \"*:$node\"], \"hold\": true}"; sleep $pause; no_faults ;;
    3) say "cut node $node off from ZooKeeper for $pause s"
        on_node $node session/suspend; sleep $pause; on_node $node session/resume ;;
    4) say "stop node $node"
        on_node $node stop; sleep $pause; on_node $node start ;;
    5) say "slow all links of node $node for $pause s"
        fault "{\"link\": [\"$node:*\", \"*:$node\"], \"delay_ms\": [50, 300]}"; sleep $pause; no_faults ;;
    6) say "break the connections of node $node to the others for $pause s"
        fault "{\"link\": [\"$node:*\", \"*:$node\"], \"disconnect\": \"before\"}"; sleep $pause; no_faults ;;
    7) say "expire the session of node $node"
        on_node $node session/expire; sleep $pause ;;
    esac
    until_so "topic=$topic&isr=2%2B"
    round=$((round + 1))
done

# --- without faults, all records are stored and read

say "$round faults; now the cluster recovers"
touch enough
wait $first
wait $second
wait $resizing
until_so "topic=$topic&isr=3%2B"
until_so "group=readers&lag=0"
curl --silent "$control/v1/events" > events.json
kill $reader
wait $reader 2> /dev/null || true
running=$up

# --- the verdict

say "$(wc -l < sent.jsonl) records stored in $directory"
"$python" -m anabranch.judge --sent sent.jsonl --deliveries delivered.jsonl
if [ "${AUDIT:-1}" = 1 ]; then
    $anabranch audit --deliveries delivered.jsonl --sent sent.jsonl --out audit
fi
