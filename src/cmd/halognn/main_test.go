package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// A value of a flag that is no number is refused in words of the program, not of Go.
func TestFaultsOfFlags(t *testing.T) {
	for _, c := range []struct{ flag, want string }{
		{"--n=x", `invalid argument "x" for "--n" flag: want a whole number`},
		{"--n=99999999999999999999",
			`invalid argument "99999999999999999999" for "--n" flag: the number is too large`},
		{"--u=-1", `invalid argument "-1" for "--u" flag: want a whole number from 0 on`},
		{"--x=y", `invalid argument "y" for "--x" flag: want a number`},
		{"--all=1,y", `invalid argument "1,y" for "--all" flag: want a whole number`},
		{"--yes=no", `invalid argument "no" for "--yes" flag: want true or false`},
		{"--other", "unknown flag: --other"},
		{"--n", "flag needs an argument: --n"},
	} {
		got := ""
		command := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }}
		command.SetFlagErrorFunc(func(_ *cobra.Command,
			err error) error {
			got = flagFault(err)
			return err
		})
		command.SetArgs([]string{c.flag})
		command.SetErr(io.Discard)
		command.SetOut(io.Discard)
		f := command.Flags()
		f.Int("n", 0, "")
		f.Uint64("u", 0, "")
		f.Float64("x", 0, "")
		f.IntSlice("all", nil, "")
		f.Bool("yes", false, "")
		if err := command.Execute(); err == nil || got != c.want {
			t.Errorf("%s: %v, told as %q, expected %q", c.flag, err, got, c.want)
		}
	}
}

// A panic ends the program with the exit code and the words of docs/exit-codes.md, wherever it
// happens: in a command, on a goroutine of its own, on a rank that others wait for. The command
// runs in another process, because its end is that of the process.
func TestPanicsEndTheProgram(t *testing.T) {
	kinds := map[string]func(p *process) error{
		"command": func(*process) error { panic("boom") },
		"worker": func(*process) error {
			mem.Parallel(2,
				func(int) { panic("boom") })
			return nil
		},
		"rank": func(p *process) error {
			p.goroutines = 3
			return p.run(func(c comm.Comm) error {
				if c.Rank() == 1 {
					panic("boom")
				}
				return c.StartBarrier().Wait()
			})
		},
	}
	if kind := flag.Arg(0); kind != "" {
		p := new(process)
		root := rootCommand(p)
		root.AddCommand(&cobra.Command{Use: "panic",
			RunE: func(*cobra.Command, []string) error { return kinds[kind](p) }})
		root.SetArgs([]string{"panic"})
		p.execute(root)
		os.Exit(0) // not reached
	}
	for kind := range kinds {
		var said strings.Builder
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", kind)
		c.Stderr = &said
		err := c.Run()
		if code := c.ProcessState.ExitCode(); code != exitBug {
			t.Errorf("%s: %v", kind, err)
		}
		first, stack, _ := strings.Cut(said.String(), "\n")
		if !strings.HasPrefix(first, "halognn: ") || !strings.Contains(first, "panic: boom") ||
			!strings.Contains(first, "bug in halognn") || !strings.Contains(stack, "main_test.go") {
			t.Errorf("%s: it says %s", kind, said.String())
		}
	}
}

func TestExitCodes(t *testing.T) {
	crash := &mem.Panic{Value: "boom"}
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("something"), exitFailed},
		{dataError(fmt.Errorf("parts: %w", unix.ENOSPC)), exitFailed},
		{usageError(fmt.Errorf("config: %w", unix.EDQUOT)), exitFailed},
		{setUpError(fmt.Errorf("features: %w", mem.ErrMemory)), exitFailed},
		{setUpError(errors.New("no such file")), exitData},
		{dataError(errors.New("no such file")), exitData},
		{usageError(dataError(errors.New("no such file"))), exitData},
		{crash, exitBug},
		{dataError(fmt.Errorf("rank 1: %w", crash)), exitBug},
		{fmt.Errorf("epoch 3: %w", nn.ErrDiverged), exitDiverged},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// An error that ranks agree upon has one code on all of them, whichever rank has it, and whatever
// others take its text for.
func TestAgreedErrorsKeepTheirCode(t *testing.T) {
	for want, err := range map[int]error{
		exitFailed:   dataError(fmt.Errorf("parts: %w", unix.ENOSPC)),
		exitUsage:    usageError(errors.New("too little memory")),
		exitData:     errors.New("no such file"),
		exitDiverged: fmt.Errorf("epoch 3: %w", nn.ErrDiverged),
		exitRequeue:  withCode(exitRequeue, errors.New("stopped")),
	} {
		for rank := range 3 {
			p := &process{goroutines: 3}
			p.log.quiet = true
			got := p.run(func(c comm.Comm) error {
				var mine error
				if c.Rank() == rank {
					mine = err
				}
				return setUpError(comm.Agree(c, mine))
			})
			if code := codeOf(got); code != want {
				t.Errorf("rank %d has %v: exit code %d, want %d", rank, err, code, want)
			}
		}
	}
}

// The report is written or served.
func TestReportIsWrittenOrServed(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"report", "no-run"}, exitUsage, "--out is missing"},
		{[]string{"report", "no-run", "--serve", "--out", "o"}, exitUsage,
			"--serve writes no report"},
		{[]string{"report", "no-run", "--serve"}, exitData, "holds no run"},
	} {
		root := rootCommand(new(process))
		root.SetArgs(c.args)
		if err := root.Execute(); err == nil || codeOf(err) != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, code %d", c.args, err, codeOf(err))
		}
	}
}
