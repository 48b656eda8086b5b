package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"postrider/internal/cli"
	"postrider/internal/terminal"
)

// commandsCmd prints the visible commands and their flags as JSON. internal/gendocs, which cannot import this package,
// writes docs/reference/cli.md and configuration.md from it.
type commandsCmd struct{}

// commandModel is a command and the commands below it that do something: itself, if it has none below.
type commandModel struct {
	Name, Help string
	Leaves     []leafModel
}

type leafModel struct {
	Path, Help, Summary, Detail string
	Flags                       []flagModel
}

type flagModel struct {
	Name, Default, Help string
	Envs                []string
}

// Run prints the commands in the order of --help.
func (commandsCmd) Run(std terminal.Streams) error {
	parser, err := kong.New(newVerbs(), kong.PostBuild(cli.DescribeFilters))
	if err != nil {
		return fmt.Errorf("build the command line: %w", err)
	}
	var commands []commandModel
	for _, command := range parser.Model.Children {
		if command.Hidden {
			continue
		}
		model := commandModel{Name: command.Name, Help: command.Help}
		leaves := command.Leaves(true) // without the command itself
		if command.Leaf() {
			leaves = []*kong.Node{command}
		}
		for _, leaf := range leaves {
			_, path, _ := strings.Cut(leaf.FullPath(), " ")
			var flags []flagModel
			for _, group := range leaf.AllFlags(true) {
				for _, f := range group {
					if f.Name != "help" && f.Name != "version" {
						flags = append(flags, flagModel{f.Name, f.Default, f.Help, f.Envs})
					}
				}
			}
			model.Leaves = append(model.Leaves, leafModel{path, leaf.Help, leaf.Summary(), leaf.Detail, flags})
		}
		commands = append(commands, model)
	}
	return json.NewEncoder(std.Out).Encode(commands)
}
