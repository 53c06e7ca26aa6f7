package sbom

import (
	"bytes"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"ai-sandbox/image"
)

func TestWrite(t *testing.T) {
	built := image.Built{Kind: image.KindGate, Ref: "localhost/ai-sandbox-gate:0123456789ab", Tag: "0123456789ab",
		Labels: map[string]string{image.LabelBaseRef: image.DefaultBase, image.LabelBaseDigest: image.Unpinned}}
	packages := []image.Package{
		{Kind: "deb", Name: "squid-openssl", Version: "1:6.13-2+deb13u1", Arch: "amd64"},
		{Kind: "node", Name: "node", Version: "24.15.0"},
		{Kind: "npm", Name: "@scope/name", Version: "1.2.3"},
		{Kind: "npm", Name: "twice", Version: "1.0.0"},
		{Kind: "npm", Name: "twice", Version: "1.0.0"},
	}
	b, err := Write(built, "debian", packages)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Write(built, "debian", packages); err != nil || !bytes.Equal(again, b) {
		t.Errorf("the same packages give other bytes: %v", err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(b), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Component.Version != built.Tag || bom.Metadata.Timestamp != "" {
		t.Errorf("%s", b)
	}
	var urls []string
	for _, c := range *bom.Components {
		urls = append(urls, c.PackageURL)
	}
	want := " pkg:deb/debian/squid-openssl@1%3A6.13-2+deb13u1?arch=amd64 pkg:generic/node@24.15.0 pkg:npm/%40scope/name@1.2.3 pkg:npm/twice@1.0.0"
	if got := strings.Join(urls, " "); got != want {
		t.Errorf("%s", got)
	}
	if _, err := Write(built, "debian", []image.Package{{Kind: "rpm", Name: "x", Version: "1"}}); err == nil {
		t.Error("a kind that is unknown: accepted")
	}
}
