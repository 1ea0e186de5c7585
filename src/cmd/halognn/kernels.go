package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/meter"
)

// rateElements is the number of elements of the arrays on which a device's rates are measured. It
// is so large that the device's caches cannot hold them.
const rateElements = 64 << 20

// kernelWatch meters the kernels of a rank's device in all epochs but the first, during which
// memory still grows. If there is only one epoch, it meters that one.
type kernelWatch struct {
	meter  *meter.Meter
	device compute.Device
	epochs int
	begun  int
	err    error
}

// watchKernels arranges that the kernels of the job's device are metered.
func (j *rankJob) watchKernels() *kernelWatch {
	d := j.env.Device
	w := &kernelWatch{meter: meter.New(d), device: d, epochs: j.config.Job.Epochs}
	j.env.OnSteps = w.onSteps
	return w
}

func (w *kernelWatch) onSteps(begin bool) {
	if !begin {
		w.err = errors.Join(w.err, w.meter.Stop())
		return
	}
	if w.begun++; w.begun > 1 || w.epochs == 1 {
		w.meter.Start()
	}
}

// close frees the meter and returns its errors.
func (w *kernelWatch) close() error { return errors.Join(w.err, w.meter.Free()) }

// report measures the device's best rates after the run. It writes the rates and the kernels' times
// to a file in dir, and prints both.
func (w *kernelWatch) report(out io.Writer, dir string) error {
	rates, err := meter.MeasureRates(w.device, rateElements)
	if err != nil {
		return fmt.Errorf("--kernels: %w", err)
	}
	r := w.meter.Report(rates)
	text, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		return fmt.Errorf("--kernels: %w", err)
	}
	if err := rundir.WriteFile(filepath.Join(dir, rundir.KernelsFile),
		append(text, '\n')); err != nil {
		return err
	}
	return printKernels(out, &r)
}

// printKernels prints the time of each kernel in a step, beside the least time that the device's
// rates allow.
func printKernels(out io.Writer, r *meter.Report) error {
	steps := float64(max(1, r.Steps))
	per := func(digits int, amount, seconds float64) string {
		if amount == 0 || seconds == 0 {
			return "-"
		}
		return strconv.FormatFloat(amount/seconds, 'f', digits, 64)
	}
	line := func(name, calls string, seconds, floor float64, rates ...string) []string {
		return append([]string{name, calls, fmt.Sprintf("%.3f", 1e3*seconds/steps),
			fmt.Sprintf("%.3f", 1e3*floor/steps), per(1, 100*floor, seconds)},
			rates...)
	}
	rows := [][]string{{"kernels of rank 0, a step", "calls", "ms", "at least, ms", "share, %",
		"GB/s", "TFLOP/s"}}
	for _, k := range r.Kernels {
		rows = append(rows, line(k.Name, fmt.Sprintf("%.1f", float64(k.Calls)/steps), k.Seconds,
			k.Floor,
			per(1, float64(k.Bytes)/1e9, k.Seconds), per(3, float64(k.Flops)/1e12, k.Seconds)))
	}
	rows = append(rows, line("all kernels", "", r.Busy, r.Floor),
		line("the step", "", r.Seconds, r.Floor))
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if err := trace.Table(out, rows); err != nil {
		return err
	}
	for _, p := range r.Peaks {
		if _, err := fmt.Fprintf(out, "\n  peak of %s, %s: %.3f TFLOP/s on one thread, %.3f on all",
			p.ISA, p.Precision, p.One/1e12, p.All/1e12); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\n  no kernel ran in %.1f %% of %d steps' time; the device "+
		"copies %.1f GB/s (read and written) and multiplies %.3f TFLOP/s\n",
		100*r.Idle, r.Steps, r.Copy/1e9, r.Product/1e12)
	return err
}
