package main

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"halognn/src/runs/train"
)

// heardLines makes the lines of a run of 2 epochs with a clock of its own.
func heardLines(t *testing.T) (l *lines, heard *bytes.Buffer, now *time.Time) {
	heard, now = new(bytes.Buffer), new(time.Time)
	*now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	log, err := logFlags{format: "text"}.logger(heard)
	if err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	slog.SetDefault(log)
	t.Cleanup(func() { slog.SetDefault(before) })
	clock := func() time.Time { return *now }
	return &lines{pace: pace{now: clock, every: 5 * time.Second, epochs: 2}}, heard, now
}

// A line comes every few seconds, not with every step: time, loss, the rate since the last line,
// and the time left at the pace of the whole run.
func TestLinesOfSteps(t *testing.T) {
	l, heard, now := heardLines(t)
	l.Begin("what runs")
	l.Epoch(1, 0, 10)
	for range 10 {
		*now = now.Add(time.Second)
		l.Step(0.5)
	}
	l.Evaluated(1, "loss 0.5")
	*now = now.Add(10 * time.Second)
	l.Epoch(2, 0, 10)
	l.Step(0.25)
	l.End("over")
	want := "what runs\n" +
		"12:00:05  epoch 1/2  step 5/10  loss 0.5000  1 steps/s  15s left\n" +
		"12:00:10  epoch 1/2  step 10/10  loss 0.5000  1 steps/s  10s left\n" +
		"epoch 1/2  loss 0.5\n" +
		"12:00:20  epoch 2/2  step 1/10  loss 0.2500  0.1 steps/s  16s left\n" +
		"over\n"
	if got := heard.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A run that goes on knows its pace from the steps of its own.
func TestPaceOfAResumedRun(t *testing.T) {
	l, heard, now := heardLines(t)
	l.Epoch(2, 6, 10)
	*now = now.Add(10 * time.Second)
	l.Step(1)
	want := "12:00:10  epoch 2/2  step 7/10  loss 1.0000  0.1 steps/s  30s left\n"
	if got := heard.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A step that is not shown allocates nothing.
func TestStepsAllocateNothing(t *testing.T) {
	l, _, _ := heardLines(t)
	l.Epoch(1, 0, 1000)
	var p train.Progress = l
	if n := testing.AllocsPerRun(500, func() { p.Step(0.5) }); n != 0 {
		t.Errorf("%g allocations a step", n)
	}
}
