package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/ranks/comm"
)

// vacantFile refuses an output file that exists already.
func vacantFile(path string) error {
	info, err := os.Lstat(path)
	// there is no file, or it is a device such as /dev/null; the writer reports other errors
	if err != nil || info.Mode().Type()&^fs.ModeSymlink != 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; remove it or choose another one", path, dataset.ErrExists)
}

// newRunDir returns an error if the config's run.dir is a place where no run directory may be, such
// as one inside parts. If vacant is true, the directory must also be empty. It accepts a directory
// that holds a run, because rundir.Create refuses that. Collective.
func (j *rankJob) newRunDir(vacant bool) error {
	return usageError(comm.OnFirst(j.comm, func() error {
		dir := j.config.Run.Dir
		if rundir.Begun(dir) {
			return nil
		}
		err := cmp.Or(dataset.Apart(dir, j.config.Data.Parts),
			dataset.Apart(filepath.Join(dir, rundir.ConfigFile)))
		if err == nil && vacant {
			err = dataset.Vacant(dir)
		}
		if err != nil {
			err = fmt.Errorf("run directory: %w", err)
		}
		return err
	}))
}

// apart returns an error for an output that would replace or contain an input named on the command
// line, or that would lie inside a dataset or parts.
func apart(c *cobra.Command, args []string) error {
	value := func(flag string) string {
		if f := c.Flag(flag); f != nil && f.Value.Type() == "string" {
			return f.Value.String()
		}
		return ""
	}
	inputs := slices.Clone(args)
	for _, flag := range []string{
		"data", "parts", "in", "nodes", "split", "standardize-as", "run", "config", "vertices",
		"counts",
	} {
		inputs = append(inputs, value(flag))
	}
	for _, flag := range []string{"out", "embeddings"} {
		if path := value(flag); path != "" {
			if err := dataset.Apart(path, inputs...); err != nil {
				return dataError(fmt.Errorf("--%s: %w", flag, err))
			}
		}
	}
	return nil
}
