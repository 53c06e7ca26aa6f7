// Telling names from keys.

package pibridge

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// mayBeKey tells whether a text that has to be one of a name, a model's id or an
// address may be a key, or hold one. A name is made of words: those that names of models
// and gateways have, others that can be spoken, versions, sizes and dates. A key is not:
// what is left over of it, wherever it is cut up, is long.
func mayBeKey(s string) bool {
	return len(s) > longestName || len(s) >= 36 && uuid().MatchString(s) || leftOver(s) >= enoughForKey
}

// What is shorter than a key of 48 bits in hex stands in names too (weu2, x7f3k2).
const enoughForKey, longestName = 12, 200

var (
	uuid = expression(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	day  = expression(`\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b`)
	date = expression(`^20[0-9]{2}(0[1-9]|1[0-2])[0-3][0-9]$`)
	// 0324, 2507 and 2025, as models have them.
	month = expression(`^((0[1-9]|1[0-2])[0-3][0-9]|2[0-9](0[1-9]|1[0-2])|20[0-9]{2})$`)
	// sizes, versions and number formats: 480b, a35b, 1m, 8x22b, v3p1, k2, q4, fp8, 4o.
	measure = expression(`^([0-9]{1,4}[bmkt]|a[0-9]{1,3}b|[0-9]{1,2}x[0-9]{1,3}b|v[0-9]{1,2}([a-z][0-9])?|[a-z][0-9]|[0-9]{1,2}[a-z]|fp[0-9]{1,2}|bf16|int[48]|[0-9]bit)$`)
	// gpt4o, qwen3, qwen3p8, eu1.
	numbered = expression(`^(?:([a-z]{3,}?)[0-9]{1,2}(?:p[0-9])?[a-z]?|([a-z]{2})[0-9]{1,2})$`)
	humps    = expression(`[A-Z]?[a-z]+|[A-Z]+`)
)

// hostMayBeKey is the same of a host. Nothing takes a key from there, and clouds give their
// customers' hosts a random label of up to 16 letters and digits.
func hostMayBeKey(host string) bool {
	return len(host) > longestName || uuid().MatchString(host) || leftOver(host) >= enoughForHostKey
}

const enoughForHostKey = 20

// expression is one that is compiled where it is used: most commands have no pi.
func expression(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// leftOver counts the letters and digits of a text that belong to no word, of what is
// said twice once.
func leftOver(s string) int {
	if strings.Contains(s, "-") {
		s = day().ReplaceAllString(s, "")
	}
	var words []string // but for what is known
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if !known(strings.ToLower(word)) && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	n := 0
	for _, word := range words {
		if grouped(words, len(word)) {
			n += len(word)
		} else {
			n += strange(word)
		}
	}
	return n
}

// grouped tells whether words of one length are the groups of a key, which alone may
// be sizes, versions or words.
func grouped(words []string, size int) bool {
	const many, odd, enough = 4, 2, 15
	groups, strange := 0, 0
	for _, word := range words {
		if len(word) == size {
			groups++
			if lower := strings.ToLower(word); !spoken(lower) || unusual(lower) > 0 {
				strange++
			}
		}
	}
	return groups >= many && strange >= odd && groups*size >= enough
}

// strange is the length of a word that is none, 0 for one that is, and half of it where
// keys have such parts too. It is none that is known.
func strange(word string) int {
	const longestShouted, long, perPair = 12, 12, 6
	lower := strings.ToLower(word)
	digits := strings.IndexFunc(word, func(r rune) bool { return r < '0' || r > '9' }) < 0
	letters := !strings.ContainsAny(word, "0123456789")
	switch {
	case digits && date().MatchString(word):
		return 0
	case digits && (len(word) <= 3 || month().MatchString(word)):
		return len(word) / 2
	case digits, letters && word == strings.ToUpper(word) && len(word) > longestShouted:
	case letters && (word[1:] == lower[1:] || word == strings.ToUpper(word)):
		if spoken(lower) && len(word) < long {
			return 0
		} else if spoken(lower) {
			return min(len(word), perPair*unusual(lower))
		}
	case letters: // OpenAI, LiteLLM
		parts := humps().FindAllString(word, -1)
		if strings.Join(parts, "") == word && !slices.ContainsFunc(parts, func(p string) bool { p = strings.ToLower(p); return !known(p) && !spoken(p) }) {
			return 0
		}
	default:
		if m := numbered().FindStringSubmatch(lower); m != nil && known(m[1]+m[2]) {
			return len(m[2])
		}
		if measure().MatchString(lower) && len(word) < 4 {
			return 0
		} else if measure().MatchString(lower) {
			return len(word) / 2
		}
	}
	return len(word)
}

// spoken tells whether letters are a word by their sound. A random text of few letters
// is that too often.
func spoken(letters string) bool {
	const few, many, run = 5, 24, 3
	if len(letters) < few || len(letters) > many {
		return false
	}
	vowels, consonants, rare := 0, 0, 0
	for i := range len(letters) {
		if strings.IndexByte("aeiouy", letters[i]) >= 0 {
			vowels, consonants = vowels+1, 0
		} else {
			vowels, consonants = 0, consonants+1
		}
		if strings.IndexByte("jqxz", letters[i]) >= 0 {
			rare++
		}
		if vowels > run || consonants > run || rare > 2 {
			return false
		}
	}
	return strings.ContainsAny(letters, "aeiouy")
}

// unusual counts the pairs of letters that are rare in English.
func unusual(letters string) int {
	n := 0
	for i := range len(letters) - 1 {
		at := strings.IndexByte(pairs, letters[i]-'a'+'A') // its capital, then what follows it
		if after, _, _ := strings.Cut(pairs[at+1:], " "); !strings.Contains(after, letters[i+1:i+2]) {
			n++
		}
	}
	return n
}

// pairs are the 280 most frequent ones.
const pairs = "Abcdfgiklmnprstuvy Baeilorsu Cacehiklorstuy Dadeilorsu Eabcdefgilmnopqrstuvwxy Faefilorsuy Gaeghilnorsu Haeiortuy " +
	"Iabcdefglmnoprstvxz Jeu Keis Ladeilostuvy Mabeimopsu Nacdefgiklmnostuvy Oabcdfgiklmnoprstuvw Paehiloprstu Qu " +
	"Rabcdefgiklmnoprstuvwy Sacefhiklmopstuwy Tacehiloprstuy Uabcdefgilmnprst Vaeio Waehinors Xceipt Yeimnps Zaei"

// known tells whether a word, in lower case, stands in many names: those of pi-ai 1.6.0's
// catalogue that can't be spoken or are short, and of gateways, places and settings.
func known(word string) bool {
	_, ok := slices.BinarySearch(words(), word)
	return ok
}

// words are those of the vocabulary, which is sorted.
var words = sync.OnceValue(func() []string { return strings.Fields(vocabulary) })

const vocabulary = `
	acme agi ai aion air ams and ant anthropic apac apex api app apps apr au auto awq aws az azure base be
	beam beta bf big blue bot box ca callstack cf ch chat chatgpt clef cn co code com corp cpu data de
	deep demo dev devstral dm dns dot dots drex dt east edge edit edu en er est eu exp fast fin fine
	flex flux for fp fr free from ftp fugu gcp gen ggml gguf git glm go gov gpt gptq gpu grok groq grpc
	gw hf high highspeed home host http https hub hy ibm id in inc instruct int intl io ip ir it jev job
	jobs joey jp json kev kimi kr krea kt lab labs lan laya lb leanstral lfm lightning ling lite live
	llm llms lm lmstudio low ltd luna maas mac mai main max mcp me meta mi midm mimo mini mk ml mlx mo
	mock mode moe muse my nace nano nas nemo neon net new nex next nl no node non none note nova null of
	off ok old omni on one open opus org oss own paas paperinstruments path pc pi plan plus pplx prismml
	pro prod proxy qa qwen rag raw rc red reka rest ring rtx run saba sdk se seed self sgl sgp sh site sol
	span spot sse step stg stt svc sys tag task team test tev text tgi the tier tiny tool top tpu true
	tts uat ui uk unit us use user usw v via vip vl vllm vm vpn vps web west with work ws wss www xai xs
	zai zone
`
