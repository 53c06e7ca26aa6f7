package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
	"ai-sandbox/image/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t0 := time.Now()
	at := func() string { return fmt.Sprintf("%6.2f", time.Since(t0).Seconds()) }
	rt := os.Getenv("XDG_RUNTIME_DIR") + "/ai-sandbox"
	os.MkdirAll(rt, 0o700)
	ep, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var ca []byte
	if f := os.Getenv("CAF"); f != "" {
		ca, _ = os.ReadFile(f)
	}
	home, _ := os.UserHomeDir()
	r := imagebuild.Request{Base: os.Getenv("BASE"), NodeVersion: os.Getenv("NODEV"), NodeMirror: os.Getenv("NODEM"), CA: ca, Entrypoint: ep, Arch: runtime.GOARCH,
		CacheDir: home + "/.cache/ai-sandbox", StateDir: home + "/.local/state/ai-sandbox"}
	c, err := podman.Connect(ctx, podman.Config{Binary: "/usr/bin/podman", UserSocket: os.Getenv("XDG_RUNTIME_DIR") + "/podman/podman.sock", RuntimeDir: rt, Env: os.Environ(), UID: os.Getuid()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(at(), "connected")
	p, err := r.Plan()
	fmt.Println(at(), "plan", p.Sandbox.Ref, p.Gate.Ref, p.BaseDigest, err)
	var last int64
	p, err = r.Ensure(ctx, c, imagebuild.Options{Rebuild: os.Getenv("REBUILD") != "",
		Resolve: func(ctx context.Context, ref image.Reference) (digest.Digest, error) {
			return registry.Resolve(ctx, ref, registry.Options{})
		},
		Say:  func(f string, a ...any) { fmt.Printf(at()+" "+f+"\n", a...) },
		Step: func(ref string, s imagebuild.Step) { fmt.Println(at(), ref, s.N, s.Of, s.Text) },
		Download: func(n string, done, total int64) {
			if done-last > 10<<20 || done == total {
				last = done
				fmt.Println(at(), n, done, total)
			}
		},
	})
	fmt.Println(at(), "done", err)
	fmt.Println("SANDBOX="+p.Sandbox.ID, p.Sandbox.Ref)
	fmt.Println("GATE="+p.Gate.ID, p.Gate.Ref)
	if err != nil {
		os.Exit(1)
	}
}
