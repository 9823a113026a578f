// Program events lists the adapters of a daemon, and then tells what happens, from now on.
//
//	go run ./example/events        (until Ctrl-C)
//	go run ./example/events 1      (one event)
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	vnic "vnic/client"
	v1 "vnic/client/v1"
)

func main() {
	log.SetFlags(0)
	wanted := -1
	if len(os.Args) > 1 {
		var err error
		if wanted, err = strconv.Atoi(os.Args[1]); err != nil {
			log.Fatal(err)
		}
	}
	conn, err := vnic.Dial(vnic.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	adapters := v1.NewAdapterServiceClient(conn)

	// Followed from before the list on: nothing gets lost between the two.
	events, err := v1.NewEventServiceClient(conn).FollowEvents(context.Background(), &v1.FollowEventsRequest{})
	if err != nil {
		log.Fatal(err)
	}
	// The daemon answers that the stream has begun before there is an event.
	if _, err := events.Header(); err != nil {
		log.Fatal(err)
	}

	request := &v1.ListAdaptersRequest{PageSize: 1}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		page, err := adapters.ListAdapters(ctx, request)
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		for _, adapter := range page.Adapters {
			fmt.Println(adapter.Name, word(adapter.State, "STATE_"))
		}
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	_, err = adapters.CreateAdapter(ctx, &v1.CreateAdapterRequest{AdapterId: "X", Adapter: &v1.Adapter{Mtu: 1}})
	cancel()
	for field, allowed := range vnic.DetailsOf(err).Violations {
		fmt.Printf("refused %s: %s\n", field, allowed)
	}

	fmt.Println("--- from here on as it happens")
	for ; wanted != 0; wanted-- {
		news, err := events.Recv()
		if err != nil {
			log.Fatal(err)
		}
		event := news.Event
		fmt.Println(word(event.Severity, "SEVERITY_"), event.Kind, event.Adapter+event.Port, event.Message)
	}
}

// The word of an enum's value, as vnicctl has it.
func word(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}
