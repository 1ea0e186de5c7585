package main

import (
	"errors"

	"github.com/spf13/cobra"

	"halognn/src/runs/config"
)

func configCommand() *cobra.Command {
	var path string
	var sets []string
	var markdown bool
	c := &cobra.Command{
		Use:   "config [--config FILE.yaml] [--set key.path=value ...]",
		Short: "Print all keys of the run config with their defaults and meaning, as YAML",
		Long: "Print all keys of the run config as YAML that train takes, each with a comment:\n" +
			"with their defaults or, with --config, with the values of that file.",
		Example: "  halognn config >run.yaml       (then set data.parts and run.dir)\n" +
			"  halognn config --config inputs/demo.yaml",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if markdown {
				if path != "" || sets != nil {
					return usageError(errors.New("--markdown prints the page about all keys; " +
						"leave out --config and --set"))
				}
				out(c, "%s", config.Markdown())
				return nil
			}
			resolved, err := config.WithDefaults(sets)
			if path != "" {
				resolved, err = config.Load(path, sets)
			}
			if err != nil {
				return usageError(err)
			}
			out(c, "%s", resolved.CommentedYAML())
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&path, "config", "", "YAML file of a run, to print its values (default: print "+
		"the defaults)")
	f.StringArrayVar(&sets, "set", nil, "override a key, as train.lr=0.01; repeatable")
	f.BoolVar(&markdown, "markdown", false, "print the page docs/config.md instead")
	return c
}
