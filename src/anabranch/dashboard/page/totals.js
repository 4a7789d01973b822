// Totals of a topic's partitions, and of a group's topics. Pure: no imports.

// The topics that a group reads: those with a commit, and those of its members, which may have committed nothing yet.
export function topicsOf(group, commits) {
  const owned = group.protocol === "share" ? [] : group.members.flatMap((member) => Object.keys(member.owns));
  return [...new Set([...Object.keys(commits), ...owned])];
}

// How many partitions, offsets between log start and high watermark, partitions without leader, and under-replicated ones.
export function totalsOf(rows) {
  const totals = { partitions: 0, records: 0, offline: 0, under: 0, troubled: false };
  for (const row of rows) {
    totals.partitions++;
    const start = row.replicas.find(([node]) => node === row.leader)?.[1] ?? 0;
    if (row.hw >= 0) totals.records += row.hw - Math.max(0, start);
    if (row.leader < 0 || row.hw < 0) totals.offline++;
    if (row.isr.length < row.replicas.length) totals.under++;
  }
  totals.troubled = totals.offline + totals.under > 0;
  return totals;
}
