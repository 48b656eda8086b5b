package cli

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"time"

	"github.com/posener/complete"

	"postrider/internal/cli/rest"
)

// completeTimeout is how long the shell waits for names.
const completeTimeout = time.Second

// predictors complete names, by the tags predictor of arguments. A service that does not respond completes nothing. The
// name of an event subscription follows that of its topic.
var predictors = map[string]complete.Predictor{
	"topic":  complete.PredictFunc(func(complete.Args) []string { return namesIn("/v1/topics") }),
	"policy": complete.PredictFunc(func(complete.Args) []string { return namesIn("/v1/policies") }),
	"subscription": complete.PredictFunc(func(a complete.Args) []string {
		return namesIn("/v1/topics/" + url.PathEscape(a.LastCompleted) + "/subscriptions")
	}),
}

// namesIn are the names of the objects of a list.
func namesIn(list string) (names []string) {
	server := rest.ServerFlags{
		URL: os.Getenv("POSTRIDER_URL"), CAFile: os.Getenv("POSTRIDER_CA_FILE"),
		APIKey: cmp.Or(os.Getenv("POSTRIDER_API_KEY"), os.Getenv("POSTRIDER_ADMIN_TOKEN")),
	}
	client, err := server.Client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	objects, err := client.All(ctx, list)
	if err != nil {
		return nil
	}
	for _, o := range objects {
		names = append(names, rest.TextAt(o, "name"))
	}
	return names
}
