// Package cli is ai-sandbox's command line: it takes the arguments apart, puts
// the settings together, and calls what does the work. It is the only reader of
// flags, and writes what people read.
//
// What was asked for goes to stdout, everything else to stderr. No colour is
// used, so that NO_COLOR and a redirected output are nothing special.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/detach"
	"ai-sandbox/policy"
)

// Streams are the program's own.
type Streams struct {
	In       *os.File
	Out, Err io.Writer
}

// app is one call of the program.
type app struct {
	// Out and Err are for words of ours: secrets in them are hidden. std are the same
	// as they are, for a sandbox's command.
	Out *printout
	Err io.Writer
	std Streams

	ctx    context.Context //nolint:containedctx // one call of the program, from its start to its end
	env    config.Environ
	engine Engine
	// cwd is where the program was started.
	cwd string
	// args are the program's own, for a supervisor to be started with.
	args []string
	// supervisor: this process was started by an up, to own the sandbox.
	supervisor bool
	// project is what a sandbox works in, where it isn't cwd, and workspace is
	// the same where it was made for it.
	project, workspace string
	// inProject is the project's file as it was read.
	inProject config.File
	passed
}

func newApp(ctx context.Context, args []string, env config.Environ, std Streams, engine Engine) *app {
	a := &app{std: std, ctx: ctx, env: env, engine: engine, args: args}
	a.Out, a.Err = &printout{a: a}, notices{a}
	return a
}

// Main runs the program and returns its exit code. args are without the
// program's name.
func Main(ctx context.Context, args []string, env config.Environ, std Streams, engine Engine) (code int) {
	a := newApp(ctx, args, env, std, engine)
	defer func() {
		// A mistake of ours must not be what tells a secret.
		if p := recover(); p != nil {
			fmt.Fprintf(a.Err, "ai-sandbox: error: this is a bug in ai-sandbox: %v\n%s", p, debug.Stack())
			code = exitFailed
		}
	}()
	err := a.main(args)
	if errOut := a.Out.flush(); err == nil {
		err = errOut
	}
	if err != nil {
		printError(a.Err, err, a.text)
	}
	return ExitCode(err)
}

func (a *app) main(args []string) error {
	if len(args) > 0 && args[0] == detach.Marker {
		if err := detach.Keep(); err != nil {
			return err
		}
		a.supervisor, args = true, args[1:]
	}
	var errCwd error
	a.cwd, errCwd = os.Getwd()
	inv, err := Split(args)
	for _, w := range inv.Warnings {
		a.warnf("%s", w)
	}
	if err != nil {
		return err
	}
	// These two are not the library's: its own "help" verb gets in the way.
	switch {
	case inv.Version:
		return versionVerb.action(a, inv, nil)
	case inv.Verb == "help" && !inv.Help:
		return newHelpVerb().action(a, inv, nil)
	case inv.Verb == "help":
		inv.Verb = ""
	}
	if errCwd != nil {
		return fmt.Errorf("find the current directory: %w", errCwd)
	}
	argv := append([]string{"ai-sandbox"}, strings.Fields(inv.Verb)...)
	if inv.Help {
		argv = append(argv, "--help")
	} else {
		argv = append(argv, inv.Flags...)
	}
	return a.cli(inv).RunContext(a.ctx, argv)
}

// cli builds the command tree for urfave/cli, which parses our part of the
// command line and prints the help. Split has brought the flags into one form,
// and keeps the arguments: flags would be looked for among those.
func (a *app) cli(inv Invocation) *cli.App {
	usage := func(_ *cli.Context, err error, _ bool) error {
		return &errUsage{text: err.Error(), verb: inv.Verb != ""}
	}
	root := &cli.App{
		Name:                  "ai-sandbox",
		HideHelpCommand:       true,
		HideVersion:           true,
		CustomAppHelpTemplate: rootHelp(),
		Writer:                a.Out,
		ErrWriter:             a.Err,
		// Codes and messages are ours to map (see exit.go); the library would
		// print usage errors to stdout, and end the program by itself.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usage,
		// A comma in a value is part of it.
		DisableSliceFlagSeparator: true,
		Flags:                     flags(config.UseRun, nil),
		Action: func(c *cli.Context) error {
			return a.run(inv, flagItems(c, config.UseRun))
		},
	}
	for _, v := range verbs() {
		if v.name == "help" {
			continue
		}
		root.Commands = append(root.Commands, a.command(v, v.name, inv, usage))
	}
	return root
}

func (a *app) command(v *verb, path string, inv Invocation, usage cli.OnUsageErrorFunc) *cli.Command {
	cmd := &cli.Command{
		Name:               v.name,
		HideHelpCommand:    true,
		CustomHelpTemplate: verbHelp(v, path),
		OnUsageError:       usage,
		Flags:              flags(v.use, v.flags),
		Action: func(c *cli.Context) error {
			inv.Values = map[string]string{}
			for _, f := range v.flags {
				switch {
				case f.arg != "" && c.IsSet(f.name):
					inv.Values[f.name] = c.String(f.name)
				case f.arg == "" && c.Bool(f.name):
					inv.Own = append(inv.Own, f.name)
				}
			}
			err := v.action(a, inv, flagItems(c, v.use))
			if errOut := a.Out.flush(); err == nil {
				err = errOut
			}
			return verbError(err)
		},
	}
	for _, s := range v.subs {
		cmd.Subcommands = append(cmd.Subcommands, a.command(s, path+" "+s.name, inv, usage))
	}
	return cmd
}

// flags makes the flags of a verb from the option table and its own.
func flags(use config.Use, own []ownFlag) []cli.Flag {
	var out []cli.Flag
	for _, o := range config.Options {
		switch {
		case !o.In(config.InFlag) || o.Use&use == 0:
		case o.Kind == config.List:
			out = append(out, &cli.GenericFlag{Name: o.Flag(), Value: &list{}})
		default:
			out = append(out, &cli.StringFlag{Name: o.Flag()})
		}
	}
	for _, f := range own {
		if f.arg != "" {
			out = append(out, &cli.StringFlag{Name: f.name})
		} else {
			out = append(out, &cli.BoolFlag{Name: f.name})
		}
	}
	return out
}

// list collects a repeated flag. The library's own slice flag trims its values.
type list struct{ values []string }

func (l *list) Set(s string) error { l.values = append(l.values, s); return nil }
func (l *list) String() string     { return strings.Join(l.values, " ") }

// flagItems are the flags that were given, as a layer of settings.
func flagItems(c *cli.Context, use config.Use) []config.Item {
	var items []config.Item
	for _, o := range config.Options {
		name := o.Flag()
		if !o.In(config.InFlag) || o.Use&use == 0 || !c.IsSet(name) {
			continue
		}
		values := []string{c.String(name)}
		if o.Kind == config.List {
			values = nil
			if l, ok := c.Generic(name).(*list); ok {
				values = l.values
			}
		}
		for _, v := range values {
			items = append(items, config.Item{Key: o.Key, Value: v, Origin: "--" + name})
		}
	}
	return items
}

func (a *app) warnf(format string, args ...any) {
	fmt.Fprintf(a.Err, "ai-sandbox: warning: %s\n", policy.Printable(a.text(fmt.Sprintf(format, args...))))
}

func (a *app) notef(format string, args ...any) {
	fmt.Fprintf(a.Err, "ai-sandbox: %s\n", policy.Printable(a.text(fmt.Sprintf(format, args...))))
}
