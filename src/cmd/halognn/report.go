package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/runs/report"
)

func reportCommand() *cobra.Command {
	var out, address string
	c := &cobra.Command{
		Use:   "report RUN [RUN ...] (--out DIR | --serve)",
		Short: "Tables, plots and one page about one run or many",
		Example: "  halognn report run/demo/sage --out run/report\n" +
			"  halognn report runs/scaling-* --out runs/scaling-report\n" +
			"  halognn report run/demo/sage --serve    # follows a job that runs",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(fmt.Errorf("no runs: name the run.dir of one `halognn train`, " +
					"or of several to compare them"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch served := c.Flags().Changed("serve"); {
			case served && out != "":
				return usageError(errors.New("--serve writes no report; leave out " +
					"--out, or leave out --serve to write the report"))
			case served:
				return serve(c, args, address)
			case out == "":
				return usageError(errors.New("--out is missing: give the directory to write, or " +
					"--serve to show the page without writing it"))
			}
			runs, err := report.Load(args)
			if err != nil {
				return dataError(err)
			}
			if err := report.Write(runs, out); err != nil {
				return dataError(err)
			}
			if err := report.Print(stdout, runs); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "\nwritten to %s: open %s in a browser\n", out,
				filepath.Join(out, report.PageFile))
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "",
		"the directory to write: report.html, report.md, CSV files")
	c.Flags().StringVar(&address, "serve", "", "show the page at this address and keep it up to "+
		"date, instead of writing it; without an address "+defaultAddress)
	c.Flags().Lookup("serve").NoOptDefVal = defaultAddress
	return c
}

// defaultAddress can be reached from this machine only: runs are private.
const defaultAddress = "localhost:8017"

func serve(c *cobra.Command, dirs []string, address string) error {
	shown, err := report.NewServer(dirs)
	if err != nil {
		return dataError(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return usageError(fmt.Errorf("--serve=%s: %w; give another HOST:PORT", address, err))
	}
	out(c, "the report is at http://%s/, and follows the runs; Ctrl-C ends it\n", l.Addr())
	server := &http.Server{Handler: shown, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-stopOnSignals()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
