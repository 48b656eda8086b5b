package message

import (
	"strings"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

// Slack's limits, in characters.
const (
	slackHeader  = 150
	slackSection = 3000
	slackLeast   = 20 // no value is cut to less
)

type slackMessage struct {
	Text   string       `json:"text"` // of notifications
	Blocks []slackBlock `json:"blocks"`
}

type slackBlock struct {
	Type string    `json:"type"`
	Text slackText `json:"text"`
}

type slackText struct {
	Type string `json:"type"`
	Text string `json:"text"`
	// Verbatim prevents that names and addresses in values become links and mentions.
	Verbatim bool `json:"verbatim,omitempty"`
}

// slack writes the body of a request to an incoming webhook.
//
// Source: Slack, Sending messages using incoming webhooks
// (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks), Header block and Section block
// (https://docs.slack.dev/reference/block-kit/blocks/section-block).
func slack(t text) ([]byte, error) {
	m := slackMessage{Text: slackEscaped(t.Title+": "+t.Meaning, slackSection)}
	m.Blocks = append(m.Blocks, slackBlock{"header", slackText{Type: "plain_text", Text: cut(t.Title, slackHeader)}})
	section := func(marked string) {
		m.Blocks = append(m.Blocks, slackBlock{"section", slackText{"mrkdwn", marked, true}})
	}
	if t.Meaning != "" {
		section(slackEscaped(t.Meaning, slackSection))
	}
	lines, left := []string(nil), slackSection
	for _, f := range t.Facts {
		label := "*" + f.Label + ":* "
		most := left - len(label)
		if most < slackLeast {
			break
		}
		line := label + slackEscaped(f.Value, most)
		lines, left = append(lines, line), left-utf8.RuneCountInString(line)-1
	}
	if len(lines) > 0 {
		section(strings.Join(lines, "\n"))
	}
	if t.Command != "" {
		const fence = "```"
		section(fence + strings.ReplaceAll(slackEscaped(t.Command, slackSection-2*len(fence)), "`", "'") + fence)
	}
	if t.Link != "" {
		section("<" + slackLink.Replace(t.Link) + "|Open in postrider>")
	}
	return jsonscan.Encode(m)
}

// slackLink escapes what ends the address of a link.
var slackLink = strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C")

// slackEscapes are the characters that Slack reads as markup of links and mentions.
var slackEscapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;"}

// slackEscaped escapes a text and cuts it to at most so many characters.
func slackEscaped(s string, most int) string {
	var b strings.Builder
	length, fits := 0, 0 // characters; bytes that leave a place for the ellipsis
	for _, r := range s {
		part, escaped := slackEscapes[r]
		if !escaped {
			part = string(r)
		}
		size := 1
		if escaped {
			size = len(part)
		}
		if length += size; length > most {
			return b.String()[:fits] + ellipsis
		}
		b.WriteString(part)
		if length < most {
			fits = b.Len()
		}
	}
	return b.String()
}
