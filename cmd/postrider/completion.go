package main

import (
	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Help is shown by completion --help.
func (completionCmd) Help() string {
	return `The script calls this program, which completes verbs, flags and the values of flags that have a fixed set of
them. In bash and zsh everything else is completed as a file name.

Examples:
  postrider completion bash > /etc/bash_completion.d/postrider
  postrider completion zsh >> ~/.zshrc
  postrider completion fish > ~/.config/fish/completions/postrider.fish`
}

// Run executes completion.
func (c *completionCmd) Run(k *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(k)
}
