// Package rundir handles a run directory on disk: its names, its lock, and the writing of its
// files. Whenever a process dies, each file is either complete or does not exist.
//
//	RUN/config.yaml, summary.json, model.safetensors   replaced by renaming: Create, WriteFile
//	    metrics.jsonl                                  grows; cut behind a checkpoint: Log
//	    metrics.history.jsonl                          what was cut there
//	    checkpoints/step-00000120/...                  directories, made by renaming:
//	                                                   WriteCheckpoint
//	    lock                                           the process that works on the run: Lock
//	    heartbeat                                      how far each rank is: Heartbeat
//	    trace/, profile/, kernels.json                 on request
//
// The package handles bytes, names, JSON and checksums; package train knows what states and records
// mean. Only rank 0 writes, except that each rank writes its line of the heartbeat.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
)

// Names in a run directory. docs/formats.md describes the files.
const (
	ConfigFile     = "config.yaml"
	MetricsFile    = "metrics.jsonl"
	HistoryFile    = "metrics.history.jsonl"
	SummaryFile    = "summary.json" // written last, so a run that has it has finished
	ModelFile      = "model.safetensors"
	learnedFiles   = "learned-" // prefix of files of learned rows, see LearnedFile
	KernelsFile    = "kernels.json"
	TraceDir       = "trace"
	ProfileDir     = "profile"
	CheckpointsDir = "checkpoints"
	LockFile       = "lock"
	HeartbeatFile  = "heartbeat"
)

// LearnedFile returns the name of the file with the learned rows of a part, in a run directory or
// in a checkpoint.
func LearnedFile(part int) string { return fmt.Sprintf("%s%04d.safetensors", learnedFiles, part) }

// ErrRunExists says that a run directory already holds a run.
var ErrRunExists = errors.New("it already holds a run")

// Create makes the run directory and writes the resolved config into it. It returns an error if the
// directory holds a run, so that no result is lost.
func Create(dir string, config []byte) error {
	names, err := checkpointNames(filepath.Join(dir, CheckpointsDir))
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); err == nil || len(names) > 0 {
		return fmt.Errorf("run directory %s: %w; choose another run.dir, remove this directory, "+
			"or continue its run with --resume", dir, ErrRunExists)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return ReplaceConfig(dir, config)
}

// ReplaceConfig writes the resolved config into an existing run directory.
func ReplaceConfig(dir string, config []byte) error {
	return WriteFile(filepath.Join(dir, ConfigFile), config)
}

// Begun reports whether dir holds a run, or what is left of a job that ended before its run began.
func Begun(dir string) bool {
	begun := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return slices.ContainsFunc([]string{ConfigFile, CheckpointsDir, LockFile}, begun)
}

// PartSuffix returns what a start of the run appends to TraceDir and ProfileDir, so that it
// overwrites nothing of earlier starts: "", "-2", "-3" and so on.
func PartSuffix(dir string) string {
	suffix := ""
	for n := 2; ; n++ {
		_, trace := os.Stat(filepath.Join(dir, TraceDir+suffix))
		_, profile := os.Stat(filepath.Join(dir, ProfileDir+suffix))
		if trace != nil && profile != nil {
			return suffix
		}
		suffix = fmt.Sprintf("-%d", n)
	}
}

// WriteFile replaces the file at path by one with this data, completely or not at all.
func WriteFile(path string, data []byte) error {
	if err := renameio.WriteFile(path, data, 0o666,
		renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
