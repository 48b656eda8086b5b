package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shellBlock is a block of a page that is tagged to be run: ```sh run, or ```sh run eventually, which is tried until it succeeds.
var shellBlock = regexp.MustCompile("(?ms)^```sh( run( eventually)?)?\n(.*?)^```")

// script is the blocks of a page that are to be run, as one shell's; told counts all that there are.
func script(page string) (text string, run, told int) {
	var lines strings.Builder
	lines.WriteString("set -eu -o pipefail\n")
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		told++
		switch {
		case block[2] != "":
			fmt.Fprintf(&lines, "for i in $(seq 600); do if ( %s ); then break; fi; [ $i != 600 ]; sleep 0.05; done\n", strings.TrimSpace(block[3]))
		case block[1] != "":
			lines.WriteString(block[3])
		default:
			continue
		}
		run++
	}
	return lines.String(), run, told
}

// What a page tells its reader to type works, in the order of the page, on what `postrider dev` starts.
func TestPagesThatAreTyped(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(program, filepath.Join(dir, "bin", "postrider")))
	for _, name := range []string{"quickstart.md", "rest.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		text, run, told := script(string(page))
		require.GreaterOrEqual(t, run, told-2, "%s: almost every block is run", name)
		p := startProcess(t, append(os.Environ(), "API="+d.info.API, "SINK="+d.info.Sink, "TOKEN="+d.info.AdminToken, "POSTRIDER_DATABASE_URL="+d.info.DatabaseURL, "PWD="+dir), "bash", "-c", "cd "+dir+"\n"+text)
		require.Zero(t, p.wait(), "%s:\n%s\n%s", name, p.stdout.String(), p.stderr.String())
		require.NotEmpty(t, p.stdout.String())
	}
}
