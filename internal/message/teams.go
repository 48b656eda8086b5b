package message

import "postrider/internal/jsonscan"

// teamsBytes bounds a message. Teams rejects more than about 28 KB, and counts what it makes of the card.
const teamsBytes = 20_000

type teamsMessage struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

type teamsAttachment struct {
	ContentType string    `json:"contentType"`
	ContentURL  *string   `json:"contentUrl"`
	Content     teamsCard `json:"content"`
}

type teamsCard struct {
	Schema       string         `json:"$schema"`
	Type         string         `json:"type"`
	Version      string         `json:"version"`
	FallbackText string         `json:"fallbackText"`
	Teams        map[string]any `json:"msteams"`
	Body         []teamsBlock   `json:"body"`
	Actions      []teamsAction  `json:"actions,omitempty"`
}

// teamsBlock is a RichTextBlock: unlike TextBlock and FactSet it does not read Markdown, so no value is markup.
type teamsBlock struct {
	Type    string      `json:"type"`
	Inlines []teamsText `json:"inlines"`
}

type teamsText struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Size     string `json:"size,omitempty"`
	Weight   string `json:"weight,omitempty"`
	FontType string `json:"fontType,omitempty"`
}

type teamsAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// teams writes the body of a request to a workflow that posts to a channel or chat: an Adaptive Card.
//
// Source: Microsoft, Create and send messages (https://learn.microsoft.com/microsoftteams/platform/
// webhooks-and-connectors/how-to/connectors-using); Microsoft Teams connector, known issues and limitations
// (https://learn.microsoft.com/connectors/teams/).
func teams(t text) ([]byte, error) {
	for most := maxData; ; most /= 2 {
		body, err := jsonscan.Encode(teamsOf(t, most))
		if err != nil || len(body) <= teamsBytes || most <= 1 {
			return body, err
		}
	}
}

// teamsOf cuts each text to at most so many characters.
func teamsOf(t text, most int) teamsMessage {
	card := teamsCard{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		FallbackText: cut(t.Title, most), Teams: map[string]any{"width": "Full"},
	}
	block := func(texts ...teamsText) {
		for i := range texts {
			texts[i].Type, texts[i].Text = "TextRun", cut(texts[i].Text, most)
		}
		card.Body = append(card.Body, teamsBlock{"RichTextBlock", texts})
	}
	block(teamsText{Text: t.Title, Size: "Large", Weight: "Bolder"})
	if t.Meaning != "" {
		block(teamsText{Text: t.Meaning})
	}
	for _, f := range t.Facts {
		block(teamsText{Text: f.Label + ": ", Weight: "Bolder"}, teamsText{Text: f.Value})
	}
	if t.Command != "" {
		block(teamsText{Text: t.Command, FontType: "Monospace"})
	}
	if t.Link != "" {
		card.Actions = []teamsAction{{"Action.OpenUrl", "Open in postrider", t.Link}}
	}
	return teamsMessage{"message", []teamsAttachment{{
		ContentType: "application/vnd.microsoft.card.adaptive", Content: card,
	}}}
}
