package config

import (
	"errors"
	"fmt"
	"strings"

	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

func (c *Config) faults() []string { return c.faultsOf(func(*Key) bool { return true }) }

// faultsOf returns the errors in single values, for the keys for which the function `isChecked`
// returns true, and all errors in combinations of values.
func (c *Config) faultsOf(isChecked func(*Key) bool) (faults []string) {
	for _, k := range c.keys() {
		if fault := k.fault(k.Name, plain(k.Brief)); fault != "" && isChecked(k) {
			faults = append(faults, fault)
		}
	}
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	kind := nn.FindKind(c.Job.Model.Kind)
	reads := kind == nil || kind.ReadsNeighbours
	if err := c.Job.Model.CheckHeads(); err != nil {
		bad("%v", err)
	}
	for _, f := range []struct {
		key        string
		list       []int
		mayBeEmpty bool
	}{{"fanouts", c.Drawn.Fanouts, false}, {"eval_fanouts", c.Drawn.EvalFanouts, true}} {
		n := len(f.list)
		if reads && n != c.Job.Model.Layers && c.Job.Model.Layers >= 1 &&
			!(n == 0 && f.mayBeEmpty) {
			bad("sample.%s has %d entries but model.layers is %d; give one fanout per layer, "+
				"seed hop first", f.key, n, c.Job.Model.Layers)
		}
	}
	if _, err := job.ParseRelationFanouts(c.Job.RelationFanouts, c.Job.Model.Layers); reads &&
		err != nil {
		bad("sample.relation_fanouts: %v", err)
	}
	for _, err := range c.Job.Locality.Clash(reads) {
		bad("%v", err)
	}
	if c.Job.Sample.Kind == sample.Labor && c.Drawn.LayerVertices != layerVertices {
		bad("sample.layer_vertices is %d, but sample.kind labor draws as many neighbours as "+
			"sample.fanouts says; leave it out, or choose "+
			"sample.kind=ladies", c.Drawn.LayerVertices)
	}
	spec := c.Spec()
	for _, r := range parallel.Refusals(&spec) {
		faults = append(faults, r.Error())
	}
	return faults
}

// Changes compares the config with the values at the beginning of the run, which are in the map
// began. It returns an error about every key whose value differs although it must not change during
// a run. If began lacks a key, the run was begun by a version without it. The value at the
// beginning is then that of the map before or, if before lacks the key too, the default.
func (c *Config) Changes(began map[string]string) error {
	var faults []error
	then := Default().keys()
	for i, k := range c.keys() {
		was, known := began[k.Name]
		did, other := before[k.Name]
		if other && c.Job.Model.Learned == 0 {
			continue
		}
		if other && !known {
			was, known = did, true
		}
		if !known || then[i].parse(was) { // older versions wrote some values in other ways
			was = then[i].flat()
		}
		if now := k.flat(); k.Traits&MayChange == 0 && now != was {
			faults = append(faults, fmt.Errorf("  %s is %s, but the run began with %s",
				k.Name, now, was))
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("a resumed run may change only %s. Changes of the keys below would change "+
		"its numbers; take them back, or begin another run:\n%w",
		strings.Join(c.mayChange(), ", "), errors.Join(faults...))
}

// mayChange lists the keys that may change, or section.* if all keys of a section may.
func (c *Config) mayChange() (names []string) {
	for _, s := range c.table() {
		var may []string
		for _, k := range s.keys {
			if k.Traits&MayChange != 0 {
				may = append(may, k.Name)
			}
		}
		if len(may) == len(s.keys) {
			may = []string{s.name + ".*"}
		}
		names = append(names, may...)
	}
	return names
}
