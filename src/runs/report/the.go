package report

import (
	"fmt"
	"reflect"
	"strings"

	"halognn/src/devices/compute/meter"
	"halognn/src/runs/record"
	"halognn/src/step/residence"
)

// The variable the has one of each kind of record that runs write. Only the addresses of its fields
// are used. Code that wants a number of a run's files names the field that the run wrote, as in
// r.Summary.num(&the.summary.HitRate). So if a field is renamed, this package does not compile; if
// its JSON key changes, it is read under the new key.
var the struct {
	step    record.Step
	epoch   record.Epoch
	rank    record.Rank
	eval    record.Eval
	summary record.Summary
	cache   residence.Summary
	kernels meter.Report
	kernel  meter.Kernel
}

// field is the address of a field of the variable the, and so names the field.
type field any

// jsonKeys maps every field to its JSON key.
var jsonKeys = func() map[field]string {
	all := map[field]string{}
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			of := v.Type().Field(i)
			if !of.IsExported() {
				continue
			}
			if key, _, _ := strings.Cut(of.Tag.Get("json"), ","); key != "" && key != "-" {
				all[v.Field(i).Addr().Interface()] = key
			}
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i))
			}
		}
	}
	for _, one := range []any{&the.step, &the.epoch, &the.rank, &the.eval, &the.summary, &the.cache,
		&the.kernels, &the.kernel} {
		walk(reflect.ValueOf(one).Elem())
	}
	return all
}()

// keyOf returns the JSON key of a field in records.
func keyOf(f field) string {
	key, ok := jsonKeys[f]
	if !ok {
		panic(fmt.Sprintf("report: no record has the field at %T", f))
	}
	return key
}
