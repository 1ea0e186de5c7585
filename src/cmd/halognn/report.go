package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"halognn/src/report"
)

func reportCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "report RUN [RUN ...] --out DIR",
		Short: "Tables, plots and one page about one run or many",
		Example: "  halognn report run/demo/sage --out run/report\n" +
			"  halognn report runs/scaling-* --out runs/scaling-report",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(fmt.Errorf("no runs: name the run.dir of one `halognn train`, " +
					"or of several to compare them"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := required(c, "out"); err != nil {
				return err
			}
			runs, err := report.Load(args)
			if err != nil {
				return dataError(err)
			}
			if err := report.Write(runs, out); err != nil {
				return dataError(err)
			}
			if err := report.Print(os.Stdout, runs); err != nil {
				return err
			}
			fmt.Printf("\nwritten to %s: open %s in a browser\n", out,
				filepath.Join(out, report.PageFile))
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "",
		"the directory to write: report.html, report.md, CSV files, plots")
	return c
}
