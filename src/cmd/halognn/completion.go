package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/data/dataset"
	"halognn/src/forecast/simulate"
	"halognn/src/runs/config"
)

// complete registers the values that the shell offers for the flags named here. For other flags the
// shell offers files.
func complete(c *cobra.Command) {
	for name, values := range map[string][]string{
		"kind":         {dataset.SBM, dataset.RMAT},
		"preset":       dataset.Presets(),
		"format":       dataset.Formats(),
		"feature-type": {dataset.Float32, dataset.Float16, dataset.Int8, dataset.Sparse},
		"method":       methodsOf.list(),
		"order":        {"degree", "vip"},
		"mode":         {"full", "sampled"},
		"profile":      slices.Sorted(maps.Keys(profileKinds)),
	} {
		if c.Flags().Lookup(name) != nil {
			must(c.RegisterFlagCompletionFunc(name,
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
		}
	}
	for name, completion := range map[string]cobra.CompletionFunc{
		"set": completeSet, "policies": completeList(simulate.Policies()),
	} {
		if c.Flags().Lookup(name) != nil {
			must(c.RegisterFlagCompletionFunc(name, completion))
		}
	}
	for _, name := range []string{"data", "parts", "run", "resume", "out", "dir"} {
		if f := c.Flags().Lookup(name); f != nil && f.Value.Type() == "string" {
			must(c.MarkFlagDirname(name))
		}
	}
}

// must panics if a completion could not be registered, because the flag does not exist or has a
// completion already.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// completeSet completes --set: first the key with its "=", then the words that the key takes.
func completeSet(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var all []cobra.Completion
	key, _, hasValue := strings.Cut(typed, "=")
	if !hasValue {
		for _, name := range config.Names() {
			all = append(all, name+"=")
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	for _, word := range config.Words(key) {
		all = append(all, key+"="+word)
	}
	if all == nil { // the key takes a number or a path
		return nil, cobra.ShellCompDirectiveDefault
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// completeList completes the last word of a list separated by commas.
func completeList(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var all []cobra.Completion
		for _, word := range words {
			all = append(all, before+word)
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
