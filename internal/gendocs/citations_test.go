package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompatibilityRowsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"policy/TestThis": true, "cmd/postrider/FuzzThat": true}
	for row, says := range map[string]string{
		"| a | differs | b | `policy/TestThis` |":                           "",
		"| a | differs | b | `policy/TestThis`, `cmd/postrider/FuzzThat` |": "",

		"| a | not offered | | |":                                 "",
		"| a | ours | b | `policy/TestThis` |":                    "",
		"| a | | | `policy/TestThis` |":                           `the status ""`,
		"| a | equal | b | `policy/TestThis` |":                   `the status "equal"`,
		"| a | ours | b | |":                                      "no test is cited",
		"| a | ours | b | TODO |":                                 "no test is cited",
		"| a | ours | b | `policy/TestThis`, `policy/Testing|` |": "4 columns",
		"| a | ours | b | `policy/TestThis`, policy/TestOther |":  `"policy/TestOther" is not a citation`,
		"| a | ours | b | `policy/TestOther` |":                   "there is no test policy/TestOther",
		"| a | not offered | b | `jobs/TestThis` |":               "there is no test jobs/TestThis",
		"| a | differs | | `policy/TestThis` |":                   "Here is empty",
		"| a | ours | | `policy/TestThis` |":                      "Here is empty",
		"| a | ours | `policy/TestThis` |":                        "4 columns",
		"- a `policy/TestThis`":                                   "",

		"- a\n  `policy/TestThis`\n  `cmd/postrider/FuzzThat`\n\nA note:\n\n- without a test": "",
		"- a":                       "no test is cited",
		"- a\n  `policy/TestOther`": "there is no test policy/TestOther",
	} {
		before := rowHeader + "\n" + rowRule + "\n"
		if strings.HasPrefix(row, "-") {
			before = equalList + "\n\n"
		}
		problems, rows := rowProblems("# Page\n\n"+before+row+"\n", tests)
		require.Equal(t, 1, rows, row)
		if says == "" {
			require.Empty(t, problems, row)
			continue
		}
		require.NotEmpty(t, problems, row)
		require.Contains(t, problems[0], "5: ", row)
		require.Contains(t, strings.Join(problems, "\n"), says, row)
	}
}
