// Command farside serves the far side of the end-to-end tests until it is ended:
// for the demo in the test host, where no host of the real internet answers, and
// for trying things by hand.
//
//	farside CADIR CAFILE [UPSTREAM]
//
// It writes our certificate authority and the machine's bundle to CAFILE, and
// then prints "ready".
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ai-sandbox/tests/e2e/internet"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "farside:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: farside CADIR CAFILE [UPSTREAM]")
	}
	o := internet.Options{CADir: args[0]}
	if len(args) > 2 {
		o.Upstream = args[2]
	}
	in, err := internet.Start(o)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := in.WriteCA(args[1], "/etc/ssl/certs/ca-certificates.crt"); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("ready")
	<-end
	for _, h := range in.Hits("") {
		fmt.Printf("saw %+v\n", h)
	}
	for _, q := range in.Queries("") {
		fmt.Println("asked", q)
	}
	return nil
}
