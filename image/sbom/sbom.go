// Package sbom writes an image's manifest as a bill of materials in CycloneDX
// (ECMA-424). It is the importer of the library for that. Pure.
package sbom

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"ai-sandbox/image"
)

// Path is where an image has it.
const Path = "/etc/aisb/sbom.cdx.json"

// Write is the bill of materials of an image. system is the ID in its os-release(5),
// such as debian. It has no time and no serial number, so that the same packages give
// the same bytes.
func Write(b image.Built, system string, packages []image.Package) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: b.Ref, Type: cdx.ComponentTypeContainer, Name: b.Kind.Repository(), Version: b.Tag,
	}}
	var list []cdx.Component
	// The base is in it as a whole, too: its packages are among the others.
	if ref, digest := b.Labels[image.LabelBaseRef], b.Labels[image.LabelBaseDigest]; ref != "" {
		list = append(list, cdx.Component{BOMRef: "base", Type: cdx.ComponentTypeContainer, Name: ref, Version: digest})
	}
	seen := map[string]bool{}
	for _, p := range packages {
		u, err := purl(p, system)
		if err != nil {
			return nil, err
		}
		if seen[u] { // npm has some in several places
			continue
		}
		seen[u] = true
		list = append(list, cdx.Component{BOMRef: u, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: u})
	}
	bom.Components = &list
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

// purl is a package's URL (package-url.github.io, ECMA-427).
func purl(p image.Package, system string) (string, error) {
	part := func(s string) string { return strings.ReplaceAll(url.PathEscape(s), ":", "%3A") }
	switch p.Kind {
	case "deb":
		return fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s", part(system), part(p.Name), part(p.Version), part(p.Arch)), nil
	case "node":
		return "pkg:generic/node@" + part(p.Version), nil
	case "npm":
		name := part(p.Name)
		if scope, rest, ok := strings.Cut(p.Name, "/"); ok {
			name = strings.Replace(part(scope), "@", "%40", 1) + "/" + part(rest)
		}
		return fmt.Sprintf("pkg:npm/%s@%s", name, part(p.Version)), nil
	}
	return "", fmt.Errorf("%+q is not a kind of package", p.Kind)
}
