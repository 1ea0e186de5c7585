package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"halognn/src/runs/record"
)

// A record in the two forms, and what --quiet leaves.
func TestLogFormats(t *testing.T) {
	speak := func(flags logFlags) string {
		var out bytes.Buffer
		log, err := flags.logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Log(context.Background(), levelProgress, "epoch 1/8", "rank", 0, "epoch", 1, "step", 4)
		log.Info("going on", "rank", 0)
		log.Error("disk full", "rank", 3, "code", 1)
		return out.String()
	}
	if got, want := speak(logFlags{format: "text"}),
		"epoch 1/8\nnote: going on\nhalognn: disk full\n"; got != want {
		t.Errorf("text: %q, want %q", got, want)
	}
	if got, want := speak(logFlags{format: "text", quiet: true}),
		"halognn: disk full\n"; got != want {
		t.Errorf("quiet: %q, want %q", got, want)
	}
	lines := strings.Split(strings.TrimSpace(speak(logFlags{format: "json"})), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d records, want 3: %q", len(lines), lines)
	}
	for i, want := range []map[string]any{
		{"level": "PROGRESS", "msg": "epoch 1/8", "rank": 0.0, "epoch": 1.0, "step": 4.0},
		{"level": "INFO", "msg": "going on", "rank": 0.0},
		{"level": "ERROR", "msg": "disk full", "rank": 3.0, "code": 1.0},
	} {
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%s: %s is %v, want %v", lines[i], key, got[key], value)
			}
		}
	}
	if _, err := (logFlags{format: "xml"}).logger(&bytes.Buffer{}); err == nil {
		t.Error("--log-format xml was taken")
	}
}

// What rank 0 says while it trains has the step that it is in, also of a run that went on within an
// epoch.
func TestProgressHasTheStep(t *testing.T) {
	var out bytes.Buffer
	log, err := logFlags{format: "json"}.logger(&out)
	if err != nil {
		t.Fatal(err)
	}
	before := slog.Default()
	slog.SetDefault(log)
	defer slog.SetDefault(before)
	p := newProgress(logFlags{format: "json"}, "bar", 8)
	p.Note(context.Background(), "before training")
	p.Epoch(3, 5, 10)
	p.Step(0.5)
	p.Note(context.Background(), "at the seventh step")
	p.Evaluated(3, "loss 0.5", "loss", 0.5, "valid_metric", record.Metric{})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || strings.Contains(lines[0], `"step"`) ||
		!strings.Contains(lines[1], `"rank":0,"epoch":3,"step":6`) {
		t.Errorf("%q", lines)
	}
	if !strings.HasSuffix(lines[len(lines)-1], `"loss":0.5,"valid_metric":null}`) {
		t.Errorf("an evaluation is %q", lines)
	}
}
