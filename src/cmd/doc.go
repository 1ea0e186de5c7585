// Package cmd is the wing with the programs; there is one, halognn. A program turns flags and a
// config into calls of the wings below, and errors into exit codes. No package imports cmd, and cmd
// itself has no code, only packages.
//
//	import ──> DATASET ── partition ──> PARTS ── train ──> RUN ── infer, report
//	                                               │
//	  process: signals, MPI, log, exit code ── openJob: config, parts, device ──> session
//
// Its packages:
//
//	halognn  the command line: a file for each command
//
// Begin with halognn/main.go, which has the exit codes and the list of commands, then
// halognn/train.go and halognn/job.go: how a command becomes a session on every rank.
package cmd
