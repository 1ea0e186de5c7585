// Package cmd is the wing of programs, of which there is one. It wires the wings below: flags and
// config in, exit codes out. Nothing imports it. It holds no code itself.
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
