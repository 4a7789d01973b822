// Totals of a topic's partitions. Pure: no imports.

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
