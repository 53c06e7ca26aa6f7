# How ai-sandbox is built, tested and shown. `make help` lists what there is.
# Anything longer than a line is a script under tests/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

PREFIX ?= $(HOME)/.local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOARCH ?= $(shell go env GOARCH)
GO ?= go
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Without these even podman's bindings need C libraries (gpgme, btrfs); without
# the last, the command line's library brings a Markdown parser.
tags := remote,containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper,urfave_cli_no_docs
export CGO_ENABLED := 0
export GOARCH
export GOFLAGS := -tags=$(tags) -buildvcs=false

embedded := cmd/ai-sandbox/internal/embedded/file/aisb-entrypoint-linux-$(GOARCH)

.PHONY: build
build: bin/aisb-entrypoint bin/ai-sandbox ## put ai-sandbox and aisb-entrypoint into bin/, static

# The entrypoint's bytes are in the image's tag, so the same source has to give
# the same bytes anywhere: no path, no tags of ours, no build id, no version.
.PHONY: bin/aisb-entrypoint
bin/aisb-entrypoint:
	GOOS=linux GOFLAGS= GOAMD64=v1 GOEXPERIMENT= $(GO) build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o $@ ./cmd/aisb-entrypoint

# Only what changed is copied, so that nothing is linked again for nothing.
.PHONY: embed
embed: bin/aisb-entrypoint
	@cmp -s $< $(embedded) && test -s $(embedded).sha256 || { rm -f $(dir $(embedded))aisb-entrypoint-*; cp $< $(embedded); sha256sum $< | cut -d' ' -f1 >$(embedded).sha256; }

.PHONY: bin/ai-sandbox
bin/ai-sandbox: embed
	GOOS=linux $(GO) build -trimpath -ldflags='-s -w -X ai-sandbox/cmd/ai-sandbox/internal/cli.version=$(VERSION)' -o $@ ./cmd/ai-sandbox

.PHONY: install
install: build ## install the one file: make install PREFIX=DIR (default ~/.local)
	install -D -m 755 bin/ai-sandbox '$(DESTDIR)$(PREFIX)/bin/ai-sandbox'

.PHONY: man
man: build ## write the man pages into bin/man
	mkdir -p bin/man
	bin/ai-sandbox manual >bin/man/ai-sandbox.1
	for verb in $$(bin/ai-sandbox completion bash -- help '' | cut -f1); do bin/ai-sandbox manual "$$verb" >bin/man/ai-sandbox-$$verb.1; done

.PHONY: demo
demo: ## install what is missing (asking first), build, and watch a gated session
	tests/demo

.PHONY: test
test: lint build beside-vm local e2e ## all of the following but images, what fails early first

# The VM is one process that computes, and takes longest; what takes little of the machine
# runs beside it. A goal that waits for another one, such as build, would start last.
.PHONY: beside-vm
beside-vm: build
	+$(MAKE) -j2 --output-sync=target built=yes vm unit fuzz-short kernel conformance

.PHONY: lint
lint: ## gofmt, go vet, golangci-lint, shellcheck
	GOLANGCI='$(GOLANGCI)' tests/lint

.PHONY: unit
unit: embed ## tests that need nothing but Go
	$(GO) test ./...

.PHONY: kernel
kernel: ## the entrypoint on a real kernel, as root in the test host
	$(GO) test -count=1 -p=1 -timeout=30m -tags=$(tags),kernel,aisb_testhook -exec='$(CURDIR)/tests/inhost root' ./entrypoint/... ./cmd/aisb-entrypoint/...

.PHONY: conformance
conformance: ## the gate's table on both engines: the builtin one here, squid in the test host
	$(GO) test -count=1 -tags=$(tags),netns ./gate/builtin
	$(GO) test -count=1 -p=1 -timeout=30m -tags=$(tags),squid -exec='$(CURDIR)/tests/inhost root' ./gate ./gate/builtin

.PHONY: local
local: build ## whole sessions on real bubblewrap, here and in the test host
	tests/jail/run -test.v
	$(GO) test -count=1 -tags=$(tags),jail ./cmd/ai-sandbox/internal/backend/local
	$(GO) test -count=1 -tags=$(tags),jail,squid -exec='$(CURDIR)/tests/inhost dev' ./cmd/ai-sandbox/internal/backend/local

.PHONY: e2e
e2e: build ## whole sessions on real podman, pasta and squid
	tests/e2e/run -test.v

.PHONY: images
images: build ## images built again and again, on real podman, registries and npm: some minutes
	AISB_TEST_PART=images tests/e2e/run -test.v

.PHONY: vm
vm: $(if $(built),,build) ## the limits, on both runtimes, in the test VM
	tests/limits/run -test.v

.PHONY: bench
bench: build ## one line a figure: bench NAME VALUE GOAL ok|short
	tests/bench/run
	tests/bench/local/run
	tests/bench/gate/run

# The gate's grammars: what comes from the user, and what from the sandbox.
.PHONY: fuzz-short
fuzz-short:
	tests/fuzz 100000x FuzzAllow FuzzParseUpstream FuzzParseUpstreamAuth FuzzReadHead FuzzSniff

.PHONY: fuzz
fuzz: ## each fuzz test for a while: make fuzz FUZZTIME=1m
	tests/fuzz $(or $(FUZZTIME),20s)

.PHONY: lock
lock: ## write an agent's lock file anew, with npm: make lock AGENT=name
	$(GO) run ./cmd/ai-sandbox/internal/harness/lock cmd/ai-sandbox/internal/harness '$(AGENT)'

.PHONY: clean
clean: ## remove what make has written
	rm -rf bin
	rm -f $(dir $(embedded))aisb-entrypoint-*

.PHONY: help
help: ## show this
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r name what; do printf '  %-12s %s\n' "$$name" "$$what"; done
