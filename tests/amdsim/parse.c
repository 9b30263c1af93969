/* SPDX-License-Identifier: Apache-2.0 */
/*
** parse.c - the text of llvm-objdump as instructions.
**
** "\tv_add_f32_dpp v1, v2, -v3 row_ror:8 row_mask:0xf bank_mask:0xf  // 000000001A00: 020204FA ..."
*/
#include "sim.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 400 };

struct parser {
    struct program *p;
    char *error;
    size_t cap;
    const char *text;
};

static int refuse(const struct parser *x, const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(x->error, x->cap, "%s in \"%s\"", what, x->text);
    return -1;
}

/* ---- operands ---- */

static bool named(struct operand *o, const char *text)
{
    static const struct {
        const char *name;
        uint8_t kind, words;
        uint16_t reg;
    } names[] = {
        {"vcc", IS_SCALAR, 2, SGPR_VCC},
        {"vcc_lo", IS_SCALAR, 1, SGPR_VCC},
        {"vcc_hi", IS_SCALAR, 1, SGPR_VCC + 1},
        {"exec", IS_SCALAR, 2, SGPR_EXEC},
        {"exec_lo", IS_SCALAR, 1, SGPR_EXEC},
        {"exec_hi", IS_SCALAR, 1, SGPR_EXEC + 1},
        {"m0", IS_SCALAR, 1, SGPR_M0},
        {"null", IS_SCALAR, 1, SGPR_NULL},
        {"scc", IS_SCC, 1, 0},
        {"src_scc", IS_SCC, 1, 0},
        {"off", IS_WORD, 0, 0},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            o->kind = names[i].kind;
            o->words = names[i].words;
            o->reg = names[i].reg;
            return true;
        }
    return false;
}

/* v7 v[4:5] a3 s[0:1] ttmp9, and .l or .h behind it */
static bool is_register(struct operand *o, const char *text)
{
    static const struct {
        const char *prefix;
        uint8_t kind;
        int first, most;
    } files[] = {{"ttmp", IS_SCALAR, SGPR_TTMP, 16},
                 {"v", IS_VECTOR, 0, 256},
                 {"a", IS_VECTOR, 256, 256},
                 {"s", IS_SCALAR, 0, SGPR_VCC}};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        size_t n = strlen(files[f].prefix);
        int from, to, used = 0;
        if (strncmp(text, files[f].prefix, n) != 0 ||
            (text[n] != '[' && !isdigit((unsigned char)text[n])))
            continue;
        if (sscanf(text + n, "[%d:%d]%n", &from, &to, &used) != 2 || !used) {
            if (sscanf(text + n, "%d%n", &from, &used) != 1)
                return false;
            to = from;
        }
        const char *rest = text + n + used;
        o->part = strcmp(rest, ".l") == 0 ? WORD_0 : strcmp(rest, ".h") == 0 ? WORD_1 : WHOLE;
        if ((*rest && !o->part) || to < from || to >= files[f].most)
            return false;
        o->kind = files[f].kind;
        o->reg = (uint16_t)(files[f].first + from);
        o->words = (uint8_t)(to - from + 1);
        return true;
    }
    return false;
}

static bool is_number(struct operand *o, const char *text)
{
    char *end;
    if (strncmp(text, "lit(", 4) == 0)
        text += 4;
    if (strchr(text, '.') && !strchr(text, 'x')) {
        o->kind = IS_REAL;
        o->real = strtod(text, &end);
    } else {
        o->kind = IS_INTEGER;
        o->integer = (int64_t)strtoull(text, &end, 0);
    }
    return end != text && (!*end || strcmp(end, ")") == 0);
}

static char *unwrap(char *text, const char *before, const char *after)
{
    size_t n = strlen(text), b = strlen(before), a = strlen(after);
    if (n < a + b || strncmp(text, before, b) != 0 || strcmp(text + n - a, after) != 0)
        return NULL;
    text[n - a] = '\0';
    return text + b;
}

static void parse_operand(struct operand *o, char *text)
{
    char *inner;
    memset(o, 0, sizeof *o);
    if ((inner = unwrap(text, "neg(", ")")) != NULL ||
        (text[0] == '-' && !isdigit((unsigned char)text[1]) && (inner = text + 1) != NULL)) {
        o->flags |= NEGATE;
        text = inner;
    }
    if ((inner = unwrap(text, "|", "|")) != NULL || (inner = unwrap(text, "abs(", ")")) != NULL) {
        o->flags |= ABSOLUTE;
        text = inner;
    }
    if ((inner = unwrap(text, "sext(", ")")) != NULL) {
        o->flags |= EXTEND;
        text = inner;
    }
    uint8_t flags = o->flags;
    if (!named(o, text) && !is_register(o, text) && !is_number(o, text))
        o->kind = IS_WORD;
    o->flags = flags;
}

/* ---- what stands behind the operands ---- */

static unsigned list_bits(const char *text) /* [1,0,1] is 5 */
{
    unsigned bits = 0, at = 0;
    for (; *text; text++)
        if (isdigit((unsigned char)*text))
            bits |= (unsigned)(*text - '0') << at++;
    return bits;
}

static int part_of(const char *text)
{
    static const char *const names[] = {"DWORD",  "BYTE_0", "BYTE_1", "BYTE_2",
                                        "BYTE_3", "WORD_0", "WORD_1"};
    for (int i = 0; i < 7; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

static int parse_swizzle(struct insn *i, const char *text)
{
    int n;
    char bits[8];
    if (sscanf(text, "swizzle(SWAP,%d)", &n) == 1)
        i->swizzle = 31 | n << 10;
    else if (sscanf(text, "swizzle(REVERSE,%d)", &n) == 1)
        i->swizzle = 31 | (n - 1) << 10;
    else if (sscanf(text, "swizzle(BITMASK_PERM,\"%5[01pi]\")", bits) == 1) {
        i->swizzle = 0;
        for (int b = 0; b < 5; b++)
            i->swizzle |= (bits[b] == 'p' || bits[b] == 'i') << (4 - b) |
                          (bits[b] == '1') << (9 - b) | (bits[b] == 'i') << (14 - b);
    } else
        return -1;
    return 0;
}

static bool parse_dpp(struct insn *i, const char *name, const char *value)
{
    static const struct {
        const char *name;
        enum dpp dpp;
    } kinds[] = {{"row_shl", DPP_SHL},          {"row_shr", DPP_SHR},
                 {"row_ror", DPP_ROR},          {"row_mirror", DPP_MIRROR},
                 {"row_half_mirror", DPP_HALF}, {"row_xmask", DPP_XMASK},
                 {"row_share", DPP_SHARE},      {"row_newbcast", DPP_NEWBCAST}};
    int quad[4];
    if (strcmp(name, "quad_perm") == 0 &&
        sscanf(value, "[%d,%d,%d,%d]", &quad[0], &quad[1], &quad[2], &quad[3]) == 4) {
        i->dpp = DPP_QUAD;
        i->dpp_argument = (uint8_t)(quad[0] | quad[1] << 2 | quad[2] << 4 | quad[3] << 6);
        return true;
    }
    if (strcmp(name, "row_bcast") == 0) {
        i->dpp = atoi(value) == 15 ? DPP_BCAST15 : DPP_BCAST31;
        return true;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(name, kinds[k].name) == 0) {
            i->dpp = (uint8_t)kinds[k].dpp;
            i->dpp_argument = (uint8_t)strtoul(value, NULL, 0);
            return true;
        }
    return false;
}

static bool parse_sdwa(struct insn *i, const char *name, const char *value)
{
    if (strcmp(name, "dst_unused") == 0) {
        i->dst_unused = (uint8_t)value[7]; /* UNUSED_PAD, UNUSED_SEXT, UNUSED_PRESERVE: P, S, P */
        if (strcmp(value, "UNUSED_PRESERVE") == 0)
            i->dst_unused = 'K';
        i->sdwa = 1;
        return true;
    }
    int part = part_of(value);
    if (part < 0)
        return false;
    if (strcmp(name, "dst_sel") == 0)
        i->dst_part = (uint8_t)part;
    else if (strcmp(name, "src0_sel") == 0 || strcmp(name, "src1_sel") == 0)
        i->o[1 + (name[3] - '0')].part = (uint8_t)part;
    else
        return false;
    i->sdwa = 1;
    return true;
}

/* Caching hints and scopes change nothing here. */
static bool is_hint(const char *name)
{
    static const char *const hints[] = {"glc", "slc", "dlc",   "nt", "sc0",
                                        "sc1", "th",  "scope", "gds"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(name, hints[i]) == 0)
            return strcmp(name, "gds") != 0;
    return false;
}

static bool parse_integer(struct insn *i, const char *name, const char *value)
{
    long n = strtol(value, NULL, 0);
    const struct {
        const char *name;
        int *to;
    } fields[] = {{"offset", &i->offset}, {"offset0", &i->offset0}, {"offset1", &i->offset1}};
    if (strncmp(value, "swizzle(", 8) == 0)
        return strcmp(name, "offset") == 0 && parse_swizzle(i, value) == 0;
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        if (strcmp(name, fields[f].name) == 0) {
            *fields[f].to = (int)n;
            return true;
        }
    const struct {
        const char *name;
        uint8_t *to;
    } small[] = {
        {"row_mask", &i->row_mask}, {"bank_mask", &i->bank_mask}, {"bound_ctrl", &i->bound_ctrl}};
    for (size_t f = 0; f < sizeof small / sizeof *small; f++)
        if (strcmp(name, small[f].name) == 0) {
            *small[f].to = (uint8_t)n;
            return true;
        }
    if (strcmp(name, "bound_ctrl") == 0)
        i->bound_ctrl = 1;
    if (strcmp(name, "bitop3") == 0)
        i->immediate = (uint32_t)n;
    else if (strcmp(name, "cbsz") == 0)
        i->immediate |= (uint32_t)n;
    else if (strcmp(name, "blgp") == 0)
        i->immediate |= (uint32_t)n << 8;
    else
        return false;
    return true;
}

static bool parse_modifier(struct insn *i, char *text)
{
    char *colon = strchr(text, ':'), *value = colon ? colon + 1 : (char *)"1";
    if (colon)
        *colon = '\0';
    const struct {
        const char *name;
        uint8_t *to;
    } lists[] = {{"op_sel", &i->op_sel},
                 {"op_sel_hi", &i->op_sel_hi},
                 {"neg_lo", &i->neg_lo},
                 {"neg_hi", &i->neg_hi}};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        if (strcmp(text, lists[k].name) == 0) {
            *lists[k].to = (uint8_t)list_bits(value);
            i->has_op_sel_hi |= k == 1;
            return true;
        }
    if (strcmp(text, "clamp") == 0) {
        i->clamp = 1;
        return true;
    }
    return is_hint(text) || parse_dpp(i, text, value) || parse_sdwa(i, text, value) ||
           parse_integer(i, text, value);
}

/* ---- a line ---- */

/* Ends the next piece at a separator outside of brackets; NULL at the end. */
static char *piece(char **at, char separator)
{
    char *start = *at;
    int depth = 0;
    while (*start == ' ')
        start++;
    if (!*start)
        return NULL;
    char *end = start;
    for (; *end && (depth || *end != separator); end++)
        depth += (*end == '[' || *end == '(') - (*end == ']' || *end == ')');
    *at = *end ? end + 1 : end;
    *end = '\0';
    return start;
}

static int parse_tail(const struct parser *x, struct insn *i, char *tail)
{
    for (char *word; (word = piece(&tail, ' ')) != NULL;)
        if (!parse_modifier(i, word))
            return refuse(x, "unknown modifier %s", word);
    return 0;
}

static bool takes_no_operands(const char *name)
{
    static const char *const names[] = {
        "s_wait",     "s_delay_alu", "s_nop",   "s_clause",  "s_sendmsg", "s_endpgm", "s_code_end",
        "global_inv", "global_wb",   "buffer_", "s_barrier", "s_set",     "s_sleep"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strncmp(name, names[k], strlen(names[k])) == 0)
            return true;
    return false;
}

/* The name as it stands in ops.def: without its encoding. */
static size_t base_length(const char *name)
{
    static const char *const suffixes[] = {"_dpp", "_sdwa", "_e32", "_e64"};
    size_t n = strlen(name);
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
            size_t s = strlen(suffixes[k]);
            if (n > s && strncmp(name + n - s, suffixes[k], s) == 0)
                n -= s;
        }
    return n;
}

static int parse_insn(const struct parser *x, struct insn *i, char *text)
{
    char *rest = text, *name = piece(&rest, ' '), base[64];
    i->swizzle = -1;
    i->row_mask = i->bank_mask = 15;
    i->next = -1;
    if (!name)
        return refuse(x, "no mnemonic");
    bool dual = strncmp(name, "v_dual_", 7) == 0;
    snprintf(base, sizeof base, "%s%.*s", dual ? "v_" : "", (int)base_length(name) - (dual ? 7 : 0),
             name + (dual ? 7 : 0));
    i->op = sim_op(base);
    if (!i->op)
        return refuse(x, "unknown instruction %s", name);
    if (takes_no_operands(name))
        return 0;
    for (char *part; (part = piece(&rest, ',')) != NULL;) {
        char *operand = piece(&part, ' ');
        if (i->operands == OPERANDS)
            return refuse(x, "too many operands");
        parse_operand(&i->o[i->operands++], operand);
        const struct operand *o = &i->o[i->operands - 1];
        if (o->kind == IS_VECTOR && o->reg + o->words > x->p->vgprs)
            x->p->vgprs = o->reg + o->words;
        if (parse_tail(x, i, part))
            return -1;
    }
    return 0;
}

static struct insn *append(struct program *p)
{
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 1024;
        p->code = realloc(p->code, p->cap * sizeof *p->code);
    }
    struct insn *i = &p->code[p->count++];
    memset(i, 0, sizeof *i);
    return i;
}

static int parse_line(struct parser *x, char *line)
{
    char copy[TEXT_MOST], *comment = strstr(line, "//"), *second;
    unsigned long long address = 0;
    if (!comment || sscanf(comment, "// %llx:", &address) != 1)
        return 0; /* a label, a heading */
    while (comment > line && comment[-1] == ' ')
        comment--;
    *comment = '\0';
    while (isspace((unsigned char)*line))
        line++;
    x->text = line;
    if (strlen(line) >= sizeof copy)
        return refuse(x, "line too long");
    strcpy(copy, line);
    if (strncmp(line, "s_code_end", 10) == 0)
        return 0; /* what pads the end */
    struct insn *i = append(x->p);
    i->address = address;
    i->text = line;
    if ((second = strstr(copy, " :: ")) != NULL) {
        *second = '\0';
        i->second = calloc(1, sizeof *i->second);
        i->second->address = address;
        i->second->text = line;
        if (parse_insn(x, i->second, second + 4))
            return -1;
    }
    return parse_insn(x, i, copy);
}

int program_find(const struct program *p, uint64_t address)
{
    size_t from = 0, to = p->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (p->code[middle].address < address)
            from = middle + 1;
        else
            to = middle;
    }
    return from < p->count && p->code[from].address == address ? (int)from : -1;
}

static int link_branches(struct parser *x)
{
    for (size_t k = 0; k < x->p->count; k++) {
        struct insn *i = &x->p->code[k];
        if (strncmp(i->op->name, "s_branch", 8) != 0 && strncmp(i->op->name, "s_cbranch", 9) != 0)
            continue;
        x->text = i->text;
        i->next =
            program_find(x->p, i->address + 4 + (uint64_t)(4 * (int64_t)(int16_t)i->o[0].integer));
        if (i->operands != 1 || i->next < 0)
            return refuse(x, "branch to nowhere");
    }
    return 0;
}

int program_parse(struct program *p, char *listing, char *error, size_t cap)
{
    struct parser x = {.p = p, .error = error, .cap = cap, .text = ""};
    p->listing = listing;
    for (char *line = listing, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (parse_line(&x, line))
            return -1;
    }
    return link_branches(&x);
}

void program_free(struct program *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->code[i].second);
    free(p->code);
    free(p->listing);
    memset(p, 0, sizeof *p);
}
