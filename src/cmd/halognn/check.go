package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/record"
)

// check verifies the run, the parts or the dataset that a directory holds. The result description
// describes it, for example as "4 parts of 100 vertices".
func check(dir string) (description string, err error) {
	if _, err := os.Stat(dir); err != nil {
		return "", err
	}
	has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	switch {
	case has(rundir.ConfigFile):
		return "run", checkRun(dir)
	case isParts(dir):
		s, err := shard.Open(dir, shard.Options{})
		if err != nil {
			return "", err
		}
		defer s.Close()
		return fmt.Sprintf("%d parts of %d vertices", s.Meta.Parts, s.Meta.Vertices), s.Verify()
	case has("meta.json"):
		d, err := dataset.Open(dir)
		if err != nil {
			return "", err
		}
		defer d.Close()
		return fmt.Sprintf("dataset of %d vertices", d.Meta.Vertices), d.Verify()
	}
	return "", fmt.Errorf("%s holds neither a dataset or parts (it has no meta.json) nor a run "+
		"(it has no %s); give a directory that generate, import, partition or train has written",
		dir,
		rundir.ConfigFile)
}

// isParts reports whether the directory holds parts. The meta.json of parts has offsets; the
// meta.json of a dataset has none.
func isParts(dir string) bool {
	var meta struct{ Offsets []int64 }
	text, err := mem.ReadFile(filepath.Join(dir, "meta.json"))
	return err == nil && json.Unmarshal(text, &meta) == nil && len(meta.Offsets) > 0
}

// checkRun verifies that a run is complete: it has a valid config and valid checkpoints, a summary,
// and a model whose weights can be read.
func checkRun(dir string) error {
	_, configErr := config.Load(filepath.Join(dir, rundir.ConfigFile), nil)
	var s record.Summary
	text, err := mem.ReadFile(filepath.Join(dir, rundir.SummaryFile))
	configErr = errors.Join(configErr, rundir.VerifyCheckpoints(dir, checkpoint.Sound))
	if errors.Is(err, os.ErrNotExist) {
		return errors.Join(configErr,
			fmt.Errorf("%w: the run has not finished; go on with `halognn train --resume %s`", err,
				dir))
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	_, _, modelErr := nn.ReadSafetensors(filepath.Join(dir, rundir.ModelFile))
	var learned []error
	for name, sum := range s.LearnedFiles {
		learned = append(learned, rundir.CheckFile(filepath.Join(dir, filepath.Base(name)), sum))
	}
	return errors.Join(configErr, err, modelErr, errors.Join(learned...))
}
