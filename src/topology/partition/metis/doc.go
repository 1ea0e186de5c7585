// Package metis partitions with METIS's multilevel k-way method, which makes the best cuts here.
//
//	CSC in-edges ──> undirected, no loops, no duplicates ──> METIS_PartGraphKway ──> part [N],
//	                 xadj [N+1], adjncy [A], adjwgt [A]      k-way, C constraints      repaired
//
// METIS balances several constraints at once, but may miss their limits by much and may leave parts
// empty; partition.Repair fixes both. It needs cgo, libmetis 5 and the build tag metis; without
// them, KWay returns an error. The index width of libmetis is read from its header.
//
// Source: Karypis and Kumar, Multilevel k-way partitioning scheme for irregular graphs, JPDC 1998;
// Multilevel algorithms for multi-constraint graph partitioning, SC 1998.
package metis
