package parallel

import (
	"strings"
	"testing"

	"halognn/src/job"
	"halognn/src/nn"
	"halognn/src/sample"
	"halognn/src/task"
)

// What links cannot be trained with is refused by name, and without links none of it is.
func TestRefusalsOfLinks(t *testing.T) {
	for want, change := range map[string]func(*job.Spec){
		"links.filter":                  func(s *job.Spec) { s.Partitioned, s.Links.Filter = true, true },
		"which neighbours are likelier": func(s *job.Spec) { s.Locality.Favour = 2 },
		"validation links have no weights": func(s *job.Spec) {
			s.Links.Graph, s.Model.EdgeWeights = job.TrainValidGraph, true
		},
		"tell ends of links from others": func(s *job.Spec) { s.Model.EdgeWeights = true },
		"the task of links":              func(s *job.Spec) { s.Mode.Name = ModeSplit },
	} {
		s := job.Spec{Model: nn.Config{Kind: "sage", Layers: 2, Task: task.Links}, Sample: sample.Neighbours(2, 2)}
		s.Links.Exclude = true
		change(&s)
		named := func() (found bool) {
			for _, r := range Refusals(&s) {
				found = found || strings.Contains(r.Error(), want) && r.Key != "sample.kind"
			}
			return found
		}
		if !named() {
			t.Errorf("%s is not refused: %v", want, Refusals(&s))
		}
		if s.Model.Task = task.Multiclass; named() {
			t.Errorf("%s is refused without links", want)
		}
	}
}
