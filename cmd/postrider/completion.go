package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Help is shown by completion --help.
func (completionCmd) Help() string {
	return `Verbs, flags and the values of flags that have a fixed set of them are completed; elsewhere the shell ` +
		`completes names of files.

Examples:
  postrider completion bash > /etc/bash_completion.d/postrider
  postrider completion zsh > "${fpath[1]}/_postrider"
  postrider completion fish > ~/.config/fish/completions/postrider.fish`
}

// Each script asks the program itself, which so knows nothing of shells, and shells nothing of its verbs.
var completionScripts = map[string]string{
	"bash": `_postrider() {
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- ` +
		`"${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _postrider postrider
`,
	"zsh": `#compdef postrider
_postrider() {
    local -a found
    found=("${(@f)$("${words[1]}" complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[*]}" ]]; then compadd -a found; else _files; fi
}
if [[ "$funcstack[1]" == _postrider ]]; then _postrider "$@"; else compdef _postrider postrider; fi
`,
	"fish": `function __postrider_words
    set -l tokens (commandline -opc) (commandline -ct)
    command $tokens[1] complete-words -- $tokens[2..] 2>/dev/null
end
complete -c postrider -a '(__postrider_words)'
`,
}

// Run executes completion.
func (c *completionCmd) Run() error {
	_, err := fmt.Print(completionScripts[c.Shell])
	return err
}

// completeWordsCmd is what the scripts call.
type completeWordsCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run executes complete-words.
func (c *completeWordsCmd) Run(k *kong.Context) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	_, err := fmt.Println(strings.Join(completions(k.Model.Node, words), "\n"))
	return err
}

// completions are what the last of the words, which may be empty, may become.
func completions(node *kong.Node, words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	typed, last := words[:len(words)-1], words[len(words)-1]
	var open *kong.Flag // whose value comes next
	for _, word := range typed {
		switch next := child(node, word); {
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			open = awaiting(node, word)
		case next != nil:
			node = next
		}
	}
	switch {
	case open != nil:
		found = enumOf(open.Value)
	case strings.HasPrefix(last, "-"):
		for _, flag := range flagsOf(node) {
			found = append(found, "--"+flag.Name)
		}
	default:
		for _, c := range node.Children {
			if !c.Hidden {
				found = append(found, c.Name)
			}
		}
		for _, p := range node.Positional {
			found = append(found, enumOf(p)...)
		}
	}
	found = slices.DeleteFunc(found, func(word string) bool { return !strings.HasPrefix(word, last) })
	slices.Sort(found)
	return found
}

func child(node *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

func flagsOf(node *kong.Node) (flags []*kong.Flag) {
	for n := node; n != nil; n = n.Parent {
		for _, flag := range n.Flags {
			if !flag.Hidden {
				flags = append(flags, flag)
			}
		}
	}
	return flags
}

// awaiting is the flag of this word, where its value is the next one.
func awaiting(node *kong.Node, word string) *kong.Flag {
	for _, flag := range flagsOf(node) {
		if (word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short)) && !flag.IsBool() {
			return flag
		}
	}
	return nil
}

func enumOf(value *kong.Value) (words []string) {
	if value.Enum == "" {
		return nil
	}
	for _, word := range value.EnumSlice() {
		if word != "" {
			words = append(words, word)
		}
	}
	return words
}
