package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
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
