// Command halognn trains graph neural networks on graphs that no single machine holds.
//
//	halognn generate|import ─> DATASET ─ partition ─> PARTS ─ mpirun halognn train ─> RUN ─ infer
//	                              └─────── check ───────┴──────────────────────────────┘
//
// It wires the packages below it: flags and config in, exit codes out. It is the only place that
// prints an error, once, and that aborts MPI. docs/exit-codes.md lists the codes.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
)

// Exit codes: docs/exit-codes.md.
const (
	exitFailed   = 1 // something failed while the program worked
	exitUsage    = 2 // the command line or the config is wrong
	exitBug      = 2 // a bug of this program; Go itself exits with 2 after a panic
	exitData     = 3 // a file or directory is missing, damaged, or does not fit
	exitDiverged = 4 // the loss is not a number any more
	exitStalled  = 5 // no rank makes progress any more

	exitRequeue = 75 // stopped by a signal with the state saved; EX_TEMPFAIL of sysexits.h
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

// withCode gives err the exit code, unless err has one. A panic and a full disk get codes of their
// own: they are not faults of what the program was doing.
func withCode(code int, err error) error {
	var has *exitError
	if err == nil || errors.As(err, &has) {
		return err
	}
	if bug := (*mem.Panic)(nil); errors.As(err, &bug) {
		code = exitBug
	} else if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		code = exitFailed
	}
	return &exitError{code, err}
}

// setUpError gives an exit code to an error that ranks agreed on before their first step, or while
// they wrote. Such an error is about files, unless memory ran out.
func setUpError(err error) error {
	if errors.Is(err, mem.ErrMemory) {
		return withCode(exitFailed, err)
	}
	return dataError(err)
}

func main() {
	p := new(process)
	p.checkLimits()
	p.execute(rootCommand(p))
}

// rootCommand returns the command that has all others below it.
func rootCommand(p *process) *cobra.Command {
	root := &cobra.Command{
		Use:           "halognn",
		Short:         "Train graph neural networks on graphs that no single machine holds",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().BoolVar(&p.log.quiet, "quiet", false,
		"say nothing while working; errors and results remain")
	root.PersistentFlags().StringVar(&p.log.format, "log-format", "text",
		"format of messages while working: text or json (a record a line)")
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		log, err := p.log.logger(stderr)
		slog.SetDefault(log)
		if err != nil {
			return usageError(err)
		}
		p.alone(c)
		if launched() && !underLauncher(c) {
			return usageError(fmt.Errorf("%s runs as a single process; start it without "+
				"mpirun or srun",
				c.Name()))
		}
		return apart(c, args)
	}
	root.SetFlagErrorFunc(flagError)
	root.SetOut(stdout)
	root.AddCommand(generateCommand(p), importCommand(p), partitionCommand(p), simulateCommand(),
		analyzeCommand(), planCommand(), blocksCommand(), configCommand(), trainCommand(p),
		inferCommand(p), reportCommand(), sweepCommand(
			p), checkCommand(), versionCommand(), doctorCommand(p),
		manCommand())
	must(root.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions(logFormats, cobra.ShellCompDirectiveNoFileComp)))
	for _, c := range root.Commands() {
		complete(c)
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			_, _, err := root.Find(args)
			return usageError(err)
		}
	}
	return root
}

// execute runs the command that the command line names, and ends the process if it fails.
func (p *process) execute(root *cobra.Command) {
	command := root
	// mem.Contain turns a lack of memory, a file that shrank and a panic into an error
	err := mem.Contain(func() (err error) {
		command, err = root.ExecuteC()
		if command == root { // no subcommand was found: the command line names none that exists
			err = usageError(err)
		}
		return err
	})
	if err != nil {
		err = p.onAllRanks(command, err)
	} else {
		err = stdout.end()
	}
	if err != nil {
		p.fail(err)
	}
}

// noArguments rejects positional arguments.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.Flags().Lookup("config") != nil && strings.Contains(args[0], ".y") {
		return usageError(fmt.Errorf("%q is not a flag; give a config by --config %s", args[0],
			args[0]))
	}
	return usageError(fmt.Errorf("%q is not a flag; see `%s --help`", args[0], c.CommandPath()))
}

func flagError(c *cobra.Command, err error) error {
	return usageError(fmt.Errorf("%s; see `%s --help`", flagFault(err), c.CommandPath()))
}

// flagFault rewrites the error about a flag's value: it names the values that the flag takes, where
// Go's message names the parsing function.
func flagFault(err error) string {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err.Error()
	}
	want := map[string]string{
		"ParseBool": "true or false", "ParseFloat": "a number",
		"ParseUint": "a whole number from 0 on",
	}[number.Func]
	text := strings.TrimSuffix(err.Error(), number.Error())
	if errors.Is(number.Err, strconv.ErrRange) {
		return text + "the number is too large"
	}
	return text + "want " + cmp.Or(want, "a whole number")
}
