// Command halognn trains graph neural networks on graphs that no single machine holds.
//
//	halognn generate | import ──> DATASET ── partition ──> PARTS ── mpirun halognn train ──> RUN ── infer ──> predictions.npy
//	                                  └──────────── check ───┴──────────────────────────────┘
//
// It wires the rooms below it: flags and config in, exit codes out. It is the only place that prints an error, once, and
// that aborts MPI. docs/exit-codes.md lists the codes.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"halognn/src/comm/mpi"
	"halognn/src/mem"
	"halognn/src/train"
	"halognn/src/watch"
)

// version is set by the linker: `git describe`.
var version = "unknown"

// Exit codes: docs/exit-codes.md.
const (
	exitFailed   = 1 // something failed while the program worked
	exitUsage    = 2 // command line or config
	exitData     = 3 // a file or directory is missing, damaged, or does not fit
	exitDiverged = 4 // the loss is not a number any more
	exitStalled  = 5 // no rank makes progress any more

	exitRequeue = 75 // stopped by a signal, the state is saved: EX_TEMPFAIL of sysexits.h
)

// exitError gives an error an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error { return withCode(exitUsage, err) }
func dataError(err error) error  { return withCode(exitData, err) }

// withCode gives err an exit code unless it has one.
func withCode(code int, err error) error {
	var has *exitError
	if err == nil || errors.As(err, &has) {
		return err
	}
	return &exitError{code, err}
}

func main() {
	root := &cobra.Command{
		Use:           "halognn",
		Short:         "Train graph neural networks on graphs that no single machine holds",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if launched() && !underLauncher(c) {
			return usageError(fmt.Errorf("%s is one process's work; run it without mpirun or srun", c.Name()))
		}
		return nil
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%s; see `%s --help`", flagFault(err), c.CommandPath()))
	})
	root.AddCommand(generateCommand(), importCommand(), partitionCommand(), simulateCommand(), planCommand(), blocksCommand(), configCommand(), trainCommand(), inferCommand(), reportCommand(), checkCommand(), versionCommand(), doctorCommand())
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			_, _, err := root.Find(args)
			return usageError(err)
		}
	}
	command := root
	err := mem.Guard(func() (err error) { // no room for an array, or a file that shrank, is an error of any command
		command, err = root.ExecuteC()
		if command == root { // it does nothing itself: no such command
			err = usageError(err)
		}
		return err
	})
	if err != nil {
		fail(onAllRanks(command, err))
	}
}

// noArguments refuses what is no flag.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.Flags().Lookup("config") != nil && strings.Contains(args[0], ".y") {
		return usageError(fmt.Errorf("%q is no flag; give a config by --config %s", args[0], args[0]))
	}
	return usageError(fmt.Errorf("%q is no flag; see `%s --help`", args[0], c.CommandPath()))
}

// flagFault says of a flag's value that is no number what is wanted, and not which function of Go was asked.
func flagFault(err error) string {
	text, rest, number := strings.Cut(err.Error(), ": strconv.")
	switch {
	case !number:
		return text
	case strings.HasSuffix(rest, strconv.ErrRange.Error()):
		return text + ": the number is too large"
	case strings.HasPrefix(rest, "ParseBool"):
		return text + ": want true or false"
	case strings.HasPrefix(rest, "ParseFloat"):
		return text + ": want a number"
	case strings.HasPrefix(rest, "ParseUint"):
		return text + ": want a whole number from 0 on"
	}
	return text + ": want a whole number"
}

// say prints the error.
func say(err error) { fmt.Fprintf(os.Stderr, "halognn: %v\n", err) }

// failing is the exit code of the first call of fail, and 1; 0 before.
var failing atomic.Int64

// fail prints the error and ends the program. What all ranks agreed on has been printed by rank 0,
// and every rank ends by itself; any other error ends the whole job, because other ranks may be
// waiting for this one. Any goroutine may call it; what the first one says counts, and the others
// help it to end.
func fail(err error) {
	code := exitFailed
	var has *exitError
	if errors.As(err, &has) {
		code = has.code
	}
	if errors.Is(err, train.ErrDiverged) {
		code = exitDiverged
	}
	if errors.Is(err, watch.ErrStalled) {
		code = exitStalled
	}
	if agreed := (*train.Agreed)(nil); errors.As(err, &agreed) {
		os.Exit(code)
	}
	first := failing.CompareAndSwap(0, int64(code)+1)
	if first {
		say(err)
	}
	switch {
	case inMPI:
		mpi.Abort(int(failing.Load()) - 1)
	case first:
		os.Exit(code)
	}
	select {}
}
