// Which property names of the sources are nobody's business but their own.
//
// The bundle for browsers shortens them. A name is kept when the type checker finds it anywhere on
// something that is not ours: what browsers and Node have, what goes over the wire, what users see.
// What it can't tell is kept, too; so a mistake costs bytes, not a working bundle.
import { join } from "node:path";
import ts from "typescript";

/** The types of these files are the wire's. */
const WIRE = ["frames.ts", "pipe.ts", "queues.ts", "tables.ts"].map((name) =>
  join("src", "wire", name),
);

/** The names that may be shortened. */
export function ownNames(root) {
  const config = ts.readConfigFile(join(root, "tsconfig.build.json"), ts.sys.readFile).config;
  const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram(fileNames, options);
  const checker = program.getTypeChecker();
  const files = program.getSourceFiles().filter(({ fileName }) => fileNames.includes(fileName));
  const isOwn = (file) => files.includes(file) && !WIRE.some((end) => file.fileName.endsWith(end));
  const isOurs = (symbol) =>
    !!symbol?.declarations?.length &&
    symbol.declarations.every((declaration) => isOwn(declaration.getSourceFile()));

  const found = new Set();
  const kept = publicNames(
    checker,
    files.find(({ fileName }) => fileName.endsWith("src/index.ts")),
  );
  const see = (name, ...symbols) => {
    (symbols.every(isOurs) ? found : kept).add(name.text);
  };
  const visit = (node) => {
    if (ts.isPropertyAccessExpression(node)) {
      see(node.name, checker.getSymbolAtLocation(node.name));
    } else if (ts.isObjectLiteralExpression(node)) {
      const wanted = checker.getContextualType(node);
      for (const { name } of node.properties) {
        if (!name || !ts.isIdentifier(name)) continue;
        // Where nobody says what it is to be, it is what it is: our own, most likely.
        see(name, wanted ? wanted.getProperty(name.text) : checker.getSymbolAtLocation(name));
      }
    } else if (ts.isObjectBindingPattern(node)) {
      const type = checker.getTypeAtLocation(node);
      for (const { name, propertyName = name } of node.elements) {
        if (ts.isIdentifier(propertyName)) see(propertyName, type.getProperty(propertyName.text));
      }
    } else if (ts.isIndexSignatureDeclaration(node) || ts.isStringLiteral(node)) {
      if (node.text) kept.add(node.text); // perhaps the name of a property
    }
    ts.forEachChild(node, visit);
  };
  // What the wire calls something is never shortened, whatever else is called that.
  const keep = (node) => {
    if (node.name && ts.isIdentifier(node.name)) kept.add(node.name.text);
    ts.forEachChild(node, keep);
  };
  for (const file of files) (isOwn(file) ? visit : keep)(file);
  return [...found].filter((name) => !kept.has(name) && /^\w{2,}$/.test(name)).sort();
}

/** Whatever can be reached from what the package exports. */
function publicNames(checker, index) {
  const names = new Set();
  const seen = new Set();
  const isHidden = (symbol) =>
    symbol.name.startsWith("_") || ts.getJSDocTags(symbol.valueDeclaration).some(isInternal);
  const isInternal = ({ tagName }) => tagName.text === "internal";
  const reach = (type) => {
    if (!type || seen.has(type)) return;
    seen.add(type);
    type.types?.forEach(reach);
    checker.getTypeArguments?.(type)?.forEach?.(reach);
    for (const signature of [...type.getCallSignatures(), ...type.getConstructSignatures()]) {
      reach(signature.getReturnType());
      for (const one of signature.getParameters()) reach(checker.getTypeOfSymbol(one));
    }
    for (const symbol of type.getProperties()) {
      const at = symbol.valueDeclaration;
      if (at && isHidden(symbol)) continue;
      names.add(symbol.name);
      if (!at) continue;
      if (!at.getSourceFile().isDeclarationFile) reach(checker.getTypeOfSymbol(symbol));
    }
  };
  for (const one of checker.getExportsOfModule(checker.getSymbolAtLocation(index))) {
    const real = one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one;
    if (real.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias)) {
      reach(checker.getDeclaredTypeOfSymbol(real));
    }
    if (real.valueDeclaration && !(real.flags & ts.SymbolFlags.Class)) {
      reach(checker.getTypeOfSymbol(real));
    }
  }
  return names;
}
