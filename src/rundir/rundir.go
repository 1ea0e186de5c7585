// Package rundir is the run directory on disk: the names in it, who may write to it, and how its
// files are written so that whatever dies at whatever moment leaves files that are whole.
//
//	RUN/config.yaml, summary.json, model.safetensors   replaced by renaming: Create, WriteFile
//	    metrics.jsonl                                  grows; cut behind a checkpoint: Log
//	    checkpoints/step-00000120/...                  directories, made by renaming: WriteCheckpoint
//	    lock                                           the process that works on the run: Lock
//	    heartbeat                                      how far each rank is: Heartbeat
//	    trace/, profile/, kernels.json                 on request
//
// The package knows bytes, names, JSON and checksums. What a state or a record means, train knows;
// it takes care that only rank 0 writes, but for its own line of the heartbeat.
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
	SummaryFile    = "summary.json" // written last: where it is, the run has finished
	ModelFile      = "model.safetensors"
	KernelsFile    = "kernels.json"
	TraceDir       = "trace"
	ProfileDir     = "profile"
	CheckpointsDir = "checkpoints"
	LockFile       = "lock"
	HeartbeatFile  = "heartbeat"
)

// ErrRunExists says that a run directory already holds a run.
var ErrRunExists = errors.New("it already holds a run")

// Create makes the run directory and writes the resolved config into it. A directory that holds a
// run is refused, so that no result is lost.
func Create(dir string, config []byte) error {
	names, err := checkpointNames(filepath.Join(dir, CheckpointsDir))
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ConfigFile)); err == nil || len(names) > 0 {
		return fmt.Errorf("run directory %s: %w; "+
			"choose another run.dir or remove it, or go on with it by --resume", dir, ErrRunExists)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return ReplaceConfig(dir, config)
}

// ReplaceConfig writes the resolved config into a run directory.
func ReplaceConfig(dir string, config []byte) error {
	return WriteFile(filepath.Join(dir, ConfigFile), config)
}

// Begun reports whether a run has begun in dir: it holds one, or what a job left that ended before
// its run began.
func Begun(dir string) bool {
	begun := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return slices.ContainsFunc([]string{ConfigFile, CheckpointsDir, LockFile}, begun)
}

// PartSuffix returns what to put behind TraceDir and ProfileDir so that a run that goes on
// overwrites nothing of its earlier parts: nothing, or "-2", "-3" and so on.
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

// WriteFile replaces the file at path by data, whole or not at all.
func WriteFile(path string, data []byte) error {
	if err := renameio.WriteFile(path, data, 0o666); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
