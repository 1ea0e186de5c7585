package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the man pages: `make install` calls it, users do not.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a man page of each command into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			// the tag has the date, but equal sources must give equal pages
			root.DisableAutoGenTag = true
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return fmt.Errorf("man pages: %w", err)
			}
			return doc.GenManTree(root, &doc.GenManHeader{
				Section: "1", Source: "halognn " + strings.TrimSpace(release), Manual: "halognn",
			}, args[0])
		},
	}
}
