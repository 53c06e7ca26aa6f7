// Command ai-sandbox runs a coding agent in a sandbox whose network is shut but
// for the hosts on a list.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/engine"
)

func main() { os.Exit(run()) }

func run() int {
	start := time.Now()
	// The first collection would come while the session starts, and take a
	// fifth of that. The heap stays at some tens of MiB all the same.
	debug.SetGCPercent(400)
	std := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	return cli.Main(context.Background(), os.Args[1:], config.ReadEnviron(), std, engine.New(start))
}
