package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProseProblems(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 61)
	for page, problem := range map[string]string{
		"# Page\n\nshort\n":                                  "",
		strings.Repeat("a", 101) + "\n":                      "1: 101 columns",
		"[a](" + strings.Repeat("b", 101) + ")\n":            "",
		"```\n" + strings.Repeat("a", 101) + "\n```\n":       "",
		"<!-- run\n" + strings.Repeat("a", 101) + "\n-->\n":  "",
		"| " + strings.Repeat("a", 101) + " |\n":             "",
		"| b | " + strings.Repeat("a ", 16) + "|\n":          "1: a table cell of 16 words",
		"| `a b c d e f g h i j k l m n o p q r s t` |\n":    "",
		"a\n\n" + strings.ReplaceAll(long, " ", "\n") + "\n": "3: a paragraph of 61 words",
		"- " + strings.ReplaceAll(long[:5*30], " ", "\n") + "- " + strings.ReplaceAll(long[:5*30], " ", "\n"): "",
	} {
		problems := proseProblems(page)
		if problem == "" {
			require.Empty(t, problems, page)
			continue
		}
		require.Len(t, problems, 1, page)
		require.Contains(t, problems[0], problem)
	}
	for text, banned := range map[string]bool{
		"What is owed": true, "Nobody.": true, "given up": true, "recommended": false, "PostriderNoNodeDelivers": false,
		"it mends": true, "a retold story": false,
	} {
		require.Equal(t, banned, bannedWord.MatchString(text), text)
	}
}
